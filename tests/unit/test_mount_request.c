/* gateway/mount_request: the contract's checks of mount, unmount and tunnel, in its order. */
#include "gateway/mount_request.h"
#include "tests/unit/check.h"

#define BUCKET  "bucket must be a non-empty string"
#define PATH    "mountPath must be a non-empty string"
#define OPTIONS "options must be an object"

static const struct {
    const char *body, *complaint;
} mounts[] = {
    /* one thing wrong */
    {"", "Invalid JSON body"},
    {"{", "Invalid JSON body"},
    {"{} x", "Invalid JSON body"},
    {"{\"bucket\":\"b\",\"bucket\":\"c\"}", "Invalid JSON body"},
    {"{\"bucket\":\"a\\u0000b\"}", BUCKET},
    {"{\"bucket\":\"\"}", BUCKET},
    {"{\"bucket\":7}", BUCKET},
    {"{\"bucket\":null}", BUCKET},
    {"{\"bucket\":\"b\"}", PATH},
    {"{\"bucket\":\"b\",\"mountPath\":\"\"}", PATH},
    {"{\"bucket\":\"b\",\"mountPath\":[]}", PATH},
    {"[]", PATH},
    {"null", PATH},
    {"\"x\"", PATH},
    {"{\"mountPath\":\"m\"}", "mountPath must be an absolute path (start with /)"},
    {"{\"mountPath\":\"/m\"}", OPTIONS},
    {"{\"mountPath\":\"/m\",\"options\":[]}", OPTIONS},
    {"{\"mountPath\":\"/m\",\"options\":null}", OPTIONS},
    {"{\"mountPath\":\"/m\",\"options\":{\"endpoint\":7}}",
     "options.endpoint must be a string when provided"},
    {"{\"mountPath\":\"/m\",\"options\":{\"endpoint\":null}}",
     "options.endpoint must be a string when provided"},
    {"{\"mountPath\":\"/m\",\"binding\":7,\"options\":{}}",
     "binding must be a string when provided"},
    {"{\"mountPath\":\"/m\",\"binding\":\"\",\"options\":{}}",
     "binding must be a non-empty string when provided"},
    {"{\"mountPath\":\"/m\",\"binding\":\"B\",\"options\":{\"endpoint\":\"e\"}}",
     "Provide either binding or options.endpoint, not both"},
    {"{\"mountPath\":\"/m\",\"options\":{\"s3fsOptions\":\"x\"}}",
     "options.s3fsOptions must be an array of strings when provided"},
    {"{\"mountPath\":\"/m\",\"options\":{\"s3fsOptions\":[\"a\",1]}}",
     "options.s3fsOptions must be an array of strings when provided"},
    {"{\"mountPath\":\"/m\",\"options\":{\"readOnly\":\"yes\"}}",
     "options.readOnly must be a boolean when provided"},
    {"{\"mountPath\":\"/m\",\"options\":{\"prefix\":1}}",
     "options.prefix must be a string when provided"},
    {"{\"mountPath\":\"/m\",\"options\":{\"credentialProxy\":1}}",
     "options.credentialProxy must be a boolean when provided"},
    {"{\"mountPath\":\"/m\",\"options\":{\"credentials\":null}}",
     "options.credentials must include string accessKeyId and secretAccessKey"},
    {"{\"mountPath\":\"/m\",\"options\":{\"credentials\":{\"accessKeyId\":\"a\"}}}",
     "options.credentials must include string accessKeyId and secretAccessKey"},
    {"{\"mountPath\":\"/m\",\"options\":{\"endpoint\":\"e\"}}",
     "bucket must be a non-empty string for remote mounts"},
    {"{\"bucket\":\"b\",\"mountPath\":\"/m\",\"options\":{}}",
     "options.endpoint must be the address of the S3 service"},
    /* several: the first one is told */
    {"{\"bucket\":\"\",\"mountPath\":7,\"options\":7}", BUCKET},
    {"{\"mountPath\":7,\"options\":7}", PATH},
    {"{\"mountPath\":\"/m\",\"binding\":7,\"options\":{\"endpoint\":7}}",
     "options.endpoint must be a string when provided"},
    {"{\"mountPath\":\"/m\",\"binding\":7,\"options\":{\"s3fsOptions\":7}}",
     "binding must be a string when provided"},
    {"{\"mountPath\":\"/m\",\"options\":{\"s3fsOptions\":7,\"readOnly\":7}}",
     "options.s3fsOptions must be an array of strings when provided"},
    {"{\"mountPath\":\"/m\",\"options\":{\"prefix\":7,\"readOnly\":7}}",
     "options.readOnly must be a boolean when provided"},
    {"{\"mountPath\":\"/m\",\"options\":{\"prefix\":7,\"credentialProxy\":7}}",
     "options.prefix must be a string when provided"},
    {"{\"mountPath\":\"/m\",\"options\":{\"credentials\":7,\"credentialProxy\":7}}",
     "options.credentialProxy must be a boolean when provided"},
    {"{\"mountPath\":\"/m\",\"options\":{\"credentials\":7,\"endpoint\":\"e\"}}",
     "options.credentials must include string accessKeyId and secretAccessKey"},
    /* nothing */
    {"{\"mountPath\":\"/m\",\"binding\":\"B\",\"options\":{}}", NULL},
    {"{\"bucket\":\"b\",\"mountPath\":\"/m\",\"options\":{\"endpoint\":\"\",\"provider\":7}}",
     NULL},
};

static void test_mounts(void)
{
    for (size_t i = 0; i < sizeof mounts / sizeof mounts[0]; i++) {
        struct mount_request r;
        const char *wrong = mount_request_parse(mounts[i].body, strlen(mounts[i].body), &r);
        mount_request_free(&r);
        if (wrong && mounts[i].complaint ? strcmp(wrong, mounts[i].complaint) != 0
                                         : wrong != mounts[i].complaint)
            CHECK_FAIL("%s: %s", mounts[i].body, wrong ? wrong : "(fine)");
    }
}

static void test_fields(void)
{
    static const char body[] =
        "{\"bucket\":\"b\",\"mountPath\":\"/mnt//a/../x/\",\"options\":{\"endpoint\":\"https://e\","
        "\"readOnly\":true,\"prefix\":\"/p\",\"s3fsOptions\":[\"dbglevel=info\"],"
        "\"credentials\":{\"accessKeyId\":\"K\",\"secretAccessKey\":\"S\"}}}";
    struct mount_request r;
    CHECK_STR(mount_request_parse(body, sizeof body - 1, &r), NULL);
    CHECK_STR(r.bucket, "b");
    CHECK_STR(r.binding, NULL);
    CHECK_STR(strbuf_text(&r.path), "/mnt/x");
    CHECK_STR(r.endpoint, "https://e");
    CHECK_STR(r.prefix, "/p");
    CHECK_STR(r.key_id, "K");
    CHECK_STR(r.secret, "S");
    CHECK(r.is_read_only && json_array_size(r.s3fs_options) == 1);
    mount_request_free(&r);
}

static void test_unmounts(void)
{
    static const struct {
        const char *body, *complaint, *path;
    } unmounts[] = {
        {"x", "Invalid JSON body", ""},
        {"{}", PATH, ""},
        {"{\"mountPath\":\"a\"}", "mountPath must be an absolute path (start with /)", ""},
        {"{\"mountPath\":\"/\"}", "mountPath must not resolve to / (filesystem root)", "/"},
        {"{\"mountPath\":\"/mnt/../..\"}", "mountPath must not resolve to / (filesystem root)",
         "/"},
        {"{\"mountPath\":\"//./\"}", "mountPath must not resolve to / (filesystem root)", "/"},
        {"{\"mountPath\":\"/mnt/./x/\"}", NULL, "/mnt/x"},
    };
    for (size_t i = 0; i < sizeof unmounts / sizeof unmounts[0]; i++) {
        struct mount_request r;
        CHECK_STR(unmount_request_parse(unmounts[i].body, strlen(unmounts[i].body), &r),
                  unmounts[i].complaint);
        CHECK_STR(strbuf_text(&r.path), unmounts[i].path);
        mount_request_free(&r);
    }
}

#define LABEL                                                                                      \
    " is not a valid DNS label. Use lowercase letters, digits, and internal hyphens only (no "     \
    "dots, no leading/trailing hyphens)."
#define X63 "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"

static void test_tunnels(void)
{
    static const struct {
        const char *body, *name, *complaint;
    } tunnels[] = {
        {"", "", NULL},
        {" \r\n", "", NULL},
        {"{}", "", NULL},
        {"[]", "", NULL},
        {"null", "", NULL},
        {"{\"name\":\"a-1\"}", "a-1", NULL},
        {"{\"name\":\"" X63 "\"}", X63, NULL},
        {"{", "", "Invalid JSON body"},
        {"{\"name\":1}", "", "name must be a string when provided"},
        {"{\"name\":null}", "", "name must be a string when provided"},
        {"{\"name\":\"\"}", "", "Tunnel name '' must be 1-63 characters long."},
        {"{\"name\":\"" X63 "x\"}", "", "Tunnel name '" X63 "x' must be 1-63 characters long."},
        {"{\"name\":\"A\"}", "", "Tunnel name 'A'" LABEL},
        {"{\"name\":\"a.b\"}", "", "Tunnel name 'a.b'" LABEL},
        {"{\"name\":\"-a\"}", "", "Tunnel name '-a'" LABEL},
        {"{\"name\":\"a-\"}", "", "Tunnel name 'a-'" LABEL},
    };
    for (size_t i = 0; i < sizeof tunnels / sizeof tunnels[0]; i++) {
        CLEANUP_STRBUF struct strbuf name = {0};
        CLEANUP_STRBUF struct strbuf complaint = {0};
        int rc = tunnel_request_parse(tunnels[i].body, strlen(tunnels[i].body), &name, &complaint);
        CHECK(rc == (tunnels[i].complaint ? -1 : 0));
        CHECK_STR(strbuf_text(&name), tunnels[i].name);
        CHECK_STR(strbuf_text(&complaint), tunnels[i].complaint ? tunnels[i].complaint : "");
    }
}

static void test_ports(void)
{
    static const struct {
        const char *text;
        unsigned port;
    } ports[] = {{"1024", 1024}, {"65535", 65535}, {"8080", 8080}, {"1023", 0}, {"65536", 0},
                 {"3000", 0},    {"", 0},          {"80x", 0},     {"-1", 0},   {"1e4", 0}};
    for (size_t i = 0; i < sizeof ports / sizeof ports[0]; i++)
        CHECK(tunnel_port_parse(ports[i].text) == ports[i].port);
}

int main(void)
{
    static const struct check_test tests[] = {CHECK_TEST(test_mounts), CHECK_TEST(test_fields),
                                              CHECK_TEST(test_unmounts), CHECK_TEST(test_tunnels),
                                              CHECK_TEST(test_ports)};
    return check_run(tests, sizeof tests / sizeof tests[0]);
}
