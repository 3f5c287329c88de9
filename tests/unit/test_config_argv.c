/*
 * Shell-like quoting: what words a text has. Whatever quote_sh() writes, a shell reads as one word,
 * and argv_split() too.
 */
#include "base/quote.h"
#include "config/config_internal.h"
#include "tests/unit/check.h"

#include <stdlib.h>

static struct error err;

/* The words of a text, each in <>; or the complaint. */
static const char *split(const char *text)
{
    static char shown_words[1024];
    size_t n = 0;
    memset(&err, 0, sizeof err);
    char **argv = argv_split(text, &err);
    shown_words[0] = '\0';
    for (size_t i = 0; argv && argv[i]; i++)
        n += (size_t)snprintf(shown_words + n, sizeof shown_words - n, "<%s>", argv[i]);
    free(argv);
    return err.code ? err.text : shown_words;
}

static void test_words_and_quotes(void)
{
    static const char *const table[][2] = {
        {"", ""},
        {" \t\n ", ""},
        {"a", "<a>"},
        {" a  b\tc\nd ", "<a><b><c><d>"},
        {"'a b' \"c d\"", "<a b><c d>"},
        {"a'b'c\"d\"e\\f", "<abcdef>"},
        {"'' \"\" x", "<><><x>"},
        {"a''b", "<ab>"},
        {"'a\nb' \"c\nd\"", "<a\nb><c\nd>"},
        {"'\\' '\\n' '\"' '\\\"'", "<\\><\\n><\"><\\\">"},
        {"\"\\\"\" \"\\\\\" \"\\$\" \"\\`\"", "<\"><\\><$><`>"},
        {"\"\\n\" \"\\a\" \"it's\"", "<\\n><\\a><it's>"},
        {"\\' \\\" \\\\ a\\ b \\n", "<'><\"><\\><a b><n>"},
        {"a\\\nb c \\\n d \"e\\\nf\" 'g\\\nh'", "<ab><c><d><ef><g\\\nh>"},
        {"'it'\\''s'", "<it's>"},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        CHECK_STR(split(table[i][0]), table[i][1]);
}

/* Cases Z1, Z2: nothing is expanded, and no sign begins a comment. */
static void test_nothing_is_expanded(void)
{
    CHECK_STR(split("$HOME ${x:-y} $(id) `id` $((1)) $$ %s %% %(x)s"),
              "<$HOME><${x:-y}><$(id)><`id`><$((1))><$$><%s><%%><%(x)s>");
    CHECK_STR(split("~ ~/x * a? [ab] {a,b} !x # #x ;x ; x;"),
              "<~><~/x><*><a?><[ab]><{a,b}><!x><#><#x><;x><;><x;>");
    CHECK_STR(split("a | b && c > d 2>&1 < e &"), "<a><|><b><&&><c><>><d><2>&1><<><e><&>");
    CHECK_STR(split("\"$HOME\" '$HOME' \"`x`\""), "<$HOME><$HOME><`x`>");
    CHECK_STR(split("bash -c 'while : ; do echo x; sleep 1; done'"),
              "<bash><-c><while : ; do echo x; sleep 1; done>");
    CHECK_STR(split("\xc3\xa9 '\xff'"), "<\xc3\xa9><\xff>");
}

static void test_what_is_not_closed(void)
{
    CHECK_STR(split("a 'b"), "a single quote (') is not closed");
    CHECK_STR(split("a \"b'"), "a double quote (\") is not closed");
    CHECK_STR(split("\"a\\\""), "a double quote (\") is not closed");
    CHECK_STR(split("it's"), "a single quote (') is not closed");
    CHECK_STR(split("a\\"), "a backslash stands at the end, with nothing to quote");
    CHECK_STR(split("\\"), "a backslash stands at the end, with nothing to quote");
}

static void test_long_words(void)
{
    char *text = malloc(CONFIG_ARG_MAX + 4);
    CHECK(text);
    memset(text, 'x', CONFIG_ARG_MAX + 3);
    text[CONFIG_ARG_MAX + 3] = '\0';
    text[CONFIG_ARG_MAX] = ' ';
    char **fits = argv_split(text, &err);
    text[CONFIG_ARG_MAX] = 'x';
    char **over = argv_split(text, &err);
    bool did_fit = fits && strlen(fits[0]) == CONFIG_ARG_MAX && argv_count(fits) == 2;
    free(text);
    free(fits);
    free(over);
    CHECK(did_fit && !over);
    CHECK_STR(err.text, "a word is longer than 131071 bytes (execve(2))");
}

static void test_copies_are_equal(void)
{
    char **a = argv_split("a 'b c' '' d", &err), **b = argv_copy(a), **c = argv_split("a", &err);
    char **d = argv_split("a 'b c' '' e", &err);
    bool is_right = argv_equal(a, b) && a != b && !argv_equal(a, c) && !argv_equal(c, a) &&
                    !argv_equal(a, d) && !argv_equal(a, NULL) && argv_equal(NULL, NULL) &&
                    argv_count(a) == 4 && argv_count(NULL) == 0;
    free(a);
    free(b);
    free(c);
    free(d);
    CHECK(is_right);
}

static void test_quoted_words_come_back(void)
{
    unsigned state = 1;
    for (unsigned i = 0; i < 2000; i++) {
        CLEANUP_STRBUF struct strbuf quoted = {0};
        char word[40];
        size_t n = i % 39;
        for (size_t k = 0; k < n; k++) {
            state = state * 1103515245 + 12345;
            word[k] = (char)(1 + (state >> 16) % 255);
        }
        word[n] = '\0';
        CHECK(quote_sh(&quoted, word, n) == 0);
        char **argv = argv_split(strbuf_text(&quoted), &err);
        bool is_same = argv && argv_count(argv) == 1 && strcmp(argv[0], word) == 0;
        free(argv);
        CHECK(is_same);
    }
}

int main(void)
{
    static const struct check_test tests[] = {
        CHECK_TEST(test_words_and_quotes),   CHECK_TEST(test_nothing_is_expanded),
        CHECK_TEST(test_what_is_not_closed), CHECK_TEST(test_long_words),
        CHECK_TEST(test_copies_are_equal),   CHECK_TEST(test_quoted_words_come_back),
    };
    return check_run(tests, sizeof tests / sizeof tests[0]);
}
