/*
 * Random mutations of sandbox.ini.example with all its keys: each is a whole configuration or a
 * complaint with file and line, never a crash and never something between. 20 000 of them, under
 * a sanitizer 2000 unless SANDBOX_TEST_LONG is set; the seed is printed and can be given as
 * argument. Run from the folder that holds the example.
 */
#include "config/config_internal.h"
#include "tests/unit/check.h"

#include <stdlib.h>
#include <time.h>

#define TEXT_MAX 65536
#ifdef __SANITIZE_ADDRESS__
#define DEFAULT_COUNT 2000
#else
#define DEFAULT_COUNT 20000
#endif

static uint64_t random_state;

/* xorshift64*: the same sequence everywhere for one seed. */
static size_t random_below(size_t n)
{
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return (size_t)((random_state * UINT64_C(2685821657736338717)) >> 33) % n;
}

/* The example with the '#' of its keys and sections taken away. */
static size_t read_example(char *text)
{
    FILE *f = fopen("sandbox.ini.example", "r");
    char line[512];
    size_t n = 0;
    while (f && fgets(line, sizeof line, f)) {
        bool is_key = line[0] == '#' && line[1] != ' ' && line[1] != '\n';
        n += (size_t)snprintf(text + n, TEXT_MAX - n, "%s", line + is_key);
    }
    if (f)
        fclose(f);
    return n;
}

/* ---- mutations; each takes and gives a length, at most TEXT_MAX ---- */

static size_t change_byte(char *text, size_t n)
{
    text[random_below(n)] = (char)random_below(256);
    return n;
}

static size_t drop_bytes(char *text, size_t n)
{
    size_t at = random_below(n), k = 1 + random_below(40);
    k = k < n - at ? k : n - at;
    memmove(text + at, text + at + k, n - at - k);
    return n - k > 0 ? n - k : 1;
}

/* Copy some bytes to somewhere else; often a line on top of another. */
static size_t copy_bytes(char *text, size_t n)
{
    char piece[200];
    size_t from = random_below(n), to = random_below(n), k = 1 + random_below(sizeof piece - 1);
    k = k < n - from ? k : n - from;
    if (n + k > TEXT_MAX)
        return n;
    memcpy(piece, text + from, k);
    memmove(text + to + k, text + to, n - to);
    memcpy(text + to, piece, k);
    return n + k;
}

static size_t cut(char *text, size_t n)
{
    (void)text;
    return 1 + random_below(n);
}

static size_t insert_word(char *text, size_t n)
{
    static const char *const words[] = {
        "\n[service:web]\n",
        "\n[service:x]\n",
        "[include]\nfiles = ",
        "command = ",
        "requires = ",
        "after = main",
        "instances = 9",
        "limit.",
        "'",
        "\"",
        "\\",
        "\n  ",
        " = ",
        "%",
        "-1",
        "99999999999999999",
        "tcp:",
        "command:",
        "\r\n",
        "\xff",
    };
    const char *word = words[random_below(sizeof words / sizeof words[0])];
    size_t at = random_below(n), k = strlen(word);
    if (n + k > TEXT_MAX)
        return n;
    memmove(text + at + k, text + at, n - at);
    memcpy(text + at, word, k);
    return n + k;
}

/* Names of services become those of others: cycles and unknown names. */
static size_t swap_name(char *text, size_t n)
{
    static const char *const keys[] = {"requires = ", "after = ", "before = ", "[service:"};
    static const char *const names[] = {"web", "db", "cache", "main", "no", "web@1"};
    const char *key = keys[random_below(4)], *name = names[random_below(6)];
    char *at = memmem(text, n, key, strlen(key));
    size_t k = strlen(name);
    if (!at || (size_t)(at - text) + strlen(key) + k > n)
        return n;
    memcpy(at + strlen(key), name, k);
    return n;
}

static size_t mutate(char *text, size_t n)
{
    static size_t (*const mutations[])(char *, size_t) = {change_byte, drop_bytes,  copy_bytes,
                                                          cut,         insert_word, swap_name};
    for (size_t i = random_below(4) + 1; i > 0; i--) {
        /* A cut leaves too little for the others to be worth much: seldom. */
        size_t which = random_below(6);
        if (which == 3 && random_below(4) > 0)
            which = 5;
        n = mutations[which](text, n);
    }
    return n;
}

/* ---- what must hold ---- */

/* "F:12: …", printable, whole. */
static bool is_complaint(const struct error *e)
{
    size_t digits = strncmp(e->text, "F:", 2) == 0 ? strspn(e->text + 2, "0123456789") : 0;
    return digits > 0 && strncmp(e->text + 2 + digits, ": ", 2) == 0 &&
           !strpbrk(e->text, "\n\r\x1b") && strlen(e->text) < sizeof e->text - 1;
}

/* No half of a configuration: each service has its program, each name its service. */
static bool is_whole(const struct config *c)
{
    for (size_t i = 0; i < c->service_count; i++) {
        const struct service_config *s = &c->services[i];
        if (!s->argv == !s->script || config_service(c, s->name) != s)
            return false;
        for (size_t k = 0; k < s->requires.count; k++)
            if (!config_service(c, s->requires.items[k]))
                return false;
    }
    return true;
}

static void test_mutations_of_the_example(void)
{
    static char example[TEXT_MAX], text[TEXT_MAX];
    const char *is_long = getenv("SANDBOX_TEST_LONG");
    unsigned count = is_long && is_long[0] && is_long[0] != '0' ? 20000 : DEFAULT_COUNT,
             refused = 0;
    size_t example_n = read_example(example);
    CHECK(example_n > 4096);
    printf("seed %llu, %u mutations\n", (unsigned long long)random_state, count);
    for (unsigned i = 0; i < count; i++) {
        struct error e = {0};
        uint64_t before = random_state;
        memcpy(text, example, example_n);
        size_t n = mutate(text, example_n);
        struct config *c = config_parse("F", text, n, NULL, &e);
        bool is_right = c ? is_whole(c) : is_complaint(&e);
        refused += c == NULL;
        config_free(c);
        if (!is_right)
            CHECK_FAIL("seed %llu: %.300s", (unsigned long long)before, e.text);
    }
    printf("%u refused\n", refused);
    CHECK(refused > count / 10 && refused < count);
}

int main(int argc, char **argv)
{
    static const struct check_test tests[] = {CHECK_TEST(test_mutations_of_the_example)};
    random_state = argc > 1 ? strtoull(argv[1], NULL, 10) : (uint64_t)time(NULL);
    random_state |= 1;
    return check_run(tests, sizeof tests / sizeof tests[0]);
}
