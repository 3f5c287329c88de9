/* Records: what is built is read back; what is malformed is refused. */
#include "tests/unit/check.h"

#include "control/record.h"

#include <stdlib.h>

static void builds_and_reads(void)
{
    struct record r = {0};
    struct field f;
    size_t at = 0;
    record_str(&r, "name", "dev");
    record_str(&r, "env[]", "A=:=B");
    record_int(&r, "pid", -42);
    record_bool(&r, "is_configured", true);
    record_seconds(&r, "uptime_s", 1005);
    record_str(&r, "empty", "");
    CHECK(!r.is_broken);
    CHECK(record_next(r.bytes.data, r.bytes.len, &at, &f) == 1);
    CHECK(field_is(&f, "name") && !field_is(&f, "nam") && !field_is(&f, "names"));
    CHECK_STR(f.value, "dev");
    CHECK(f.value_len == 3 && !f.is_literal);
    CHECK(record_next(r.bytes.data, r.bytes.len, &at, &f) == 1);
    CHECK(field_is(&f, "env[]") && !f.is_literal);
    CHECK_STR(f.value, "A=:=B");
    CHECK(record_next(r.bytes.data, r.bytes.len, &at, &f) == 1);
    CHECK(field_is(&f, "pid") && f.is_literal);
    CHECK_STR(f.value, "-42");
    CHECK_STR(record_get(r.bytes.data, r.bytes.len, "is_configured"), "true");
    CHECK_STR(record_get(r.bytes.data, r.bytes.len, "uptime_s"), "1.005");
    CHECK_STR(record_get(r.bytes.data, r.bytes.len, "empty"), "");
    CHECK(record_get(r.bytes.data, r.bytes.len, "nothing") == NULL);
    record_free(&r);
}

static void refuses_nul_in_values(void)
{
    struct record r = {0};
    record_bytes(&r, "text", "a\0b", 3);
    CHECK(r.is_broken);
    record_str(&r, "later", "x");
    CHECK(r.bytes.len == 0);
    record_free(&r);
}

static void stays_well_formed_when_full(void)
{
    struct record r = {.bytes.limit = 20};
    record_str(&r, "key", "0123456789");
    size_t before = r.bytes.len;
    record_str(&r, "more", "0123456789");
    CHECK(r.is_broken && r.bytes.len == before);
    CHECK_STR(record_get(r.bytes.data, r.bytes.len, "key"), "0123456789");
    record_free(&r);
}

struct malformed {
    const char *bytes;
    size_t n;
};

static void refuses_malformed_bytes(void)
{
    static const struct malformed cases[] = {
        {"a=b", 3}, {"a", 2}, {"=b", 3}, {":=b", 4}, {"", 1}, {"a=b\0c", 5}, {"a=b\0=c", 7},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct field f;
        size_t at = 0;
        int rc;
        char *copy = malloc(cases[i].n); /* exact size: a read past the end is seen by ASan */
        CHECK(copy != NULL);
        memcpy(copy, cases[i].bytes, cases[i].n);
        while ((rc = record_next(copy, cases[i].n, &at, &f)) > 0)
            ;
        const char *got = record_get(copy, cases[i].n, "a");
        free(copy);
        CHECK(rc == -1);
        CHECK(got == NULL);
    }
}

static void empty_record_has_no_fields(void)
{
    struct field f;
    size_t at = 0;
    CHECK(record_next("", 0, &at, &f) == 0);
    CHECK(record_get("", 0, "a") == NULL);
}

int main(void)
{
    RUN(builds_and_reads);
    RUN(refuses_nul_in_values);
    RUN(stays_well_formed_when_full);
    RUN(refuses_malformed_bytes);
    RUN(empty_record_has_no_fields);
    return check_failures != 0;
}
