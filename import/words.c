#include "import/words.h"

#include "base/number.h"
#include "base/quote.h"
#include "import/expand.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static int no_memory(struct error *e)
{
    return error_set(e, ERR_MEMORY, "out of memory");
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static int add(struct words *w, const char *text, size_t n, struct error *e)
{
    char **items = realloc(w->items, (w->count + 2) * sizeof *items);
    char *copy = strndup(text, n);
    if (items)
        w->items = items;
    if (!items || !copy) {
        free(copy);
        return no_memory(e);
    }
    items[w->count++] = copy;
    items[w->count] = NULL;
    return 0;
}

void words_free(struct words *w)
{
    for (size_t i = 0; i < w->count; i++)
        free(w->items[i]);
    free(w->items);
    *w = (struct words){0};
}

/* ---- commands ---- */

/* The text behind an opening quote, up to the closing one. */
static int take_quoted(const char **at, char quote, struct strbuf *word, struct error *e)
{
    for (; **at && **at != quote; ++*at) {
        if (quote == '"' && **at == '\\' && ((*at)[1] == '"' || (*at)[1] == '\\'))
            ++*at;
        if (strbuf_add(word, *at, 1) < 0)
            return no_memory(e);
    }
    if (!**at)
        return error_set(e, ERR_INVALID, "a quote (%c) is not closed", quote);
    ++*at;
    return 0;
}

static int take_word(const char **at, struct strbuf *word, struct error *e)
{
    bool is_plain = true;
    while (**at && !is_blank(**at)) {
        char c = *(*at)++;
        if (c == '\'' || c == '"') {
            is_plain = false;
            if (take_quoted(at, c, word, e) < 0)
                return -1;
            continue;
        }
        if (c == '\\' && **at == '\n') /* supervisord would pass the newline on */
            break;
        if (c == '\\' && !(c = *(*at)++))
            return error_set(e, ERR_INVALID, "a backslash stands at the end");
        if (strbuf_add(word, &c, 1) < 0)
            return no_memory(e);
    }
    const char *text = strbuf_text(word);
    const char *end = strchr(text, EXPAND_VARIABLE_END);
    if (!is_plain || text[0] != EXPAND_VARIABLE || !end || end[1])
        return 0;
    /* A lone variable is marked by a second byte in front. */
    char *room = strbuf_reserve(word, 1);
    if (!room)
        return no_memory(e);
    memmove(word->data + 1, word->data, word->len);
    word->len++;
    word->data[word->len] = '\0';
    return 0;
}

int words_split(struct words *to, const char *command, struct error *e)
{
    int status = 0;
    struct strbuf word = {0};
    while (status == 0) {
        while (is_blank(*command))
            command++;
        if (!*command)
            break;
        strbuf_clear(&word);
        status = take_word(&command, &word, e);
        if (status == 0)
            status = add(to, strbuf_text(&word), word.len, e);
    }
    strbuf_free(&word);
    return status;
}

/* ---- pairs ---- */

static int put_pair(struct words *w, const char *key, size_t key_n, const char *value,
                    size_t value_n, struct error *e)
{
    struct strbuf pair = {0};
    int status = strbuf_add(&pair, key, key_n);
    status = status < 0 ? status : strbuf_adds(&pair, "=");
    status = status < 0 ? status : strbuf_add(&pair, value, value_n);
    for (size_t i = 0; status == 0 && i < w->count; i++)
        if (strncmp(w->items[i], pair.data, key_n + 1) == 0) {
            char *copy = strdup(pair.data);
            strbuf_free(&pair);
            if (!copy)
                return no_memory(e);
            free(w->items[i]);
            w->items[i] = copy;
            return 0;
        }
    status = status < 0 ? no_memory(e) : add(w, strbuf_text(&pair), pair.len, e);
    strbuf_free(&pair);
    return status;
}

int words_add_pair(struct words *to, const char *pair, struct error *e)
{
    size_t n = strcspn(pair, "=");
    const char *text = pair[n] ? pair + n + 1 : "";
    return put_pair(to, pair, n, text, strlen(text), e);
}

/* The value at text: quoted, or up to the comma. Returns how many bytes it takes, with its quotes;
 * -1: not closed. */
static long value_length(const char *text)
{
    if (text[0] != '"' && text[0] != '\'')
        return (long)strcspn(text, ",\n");
    const char *close = strchr(text + 1, text[0]);
    return close ? close - text + 1 : -1;
}

int words_add_pairs(struct words *to, const char *text, struct error *e)
{
    static const char between[] = " \t\r\n,";
    for (text += strspn(text, between); *text; text += strspn(text, between)) {
        size_t key_n = strcspn(text, "=, \t\r\n");
        const char *value = text + key_n + strspn(text + key_n, " \t\r\n");
        if (key_n == 0 || *value != '=')
            return error_set(e, ERR_INVALID, "'%.40s' is not KEY=\"value\"", text);
        value++;
        value += strspn(value, " \t\r\n");
        long n = value_length(value);
        if (n < 0)
            return error_set(e, ERR_INVALID, "a quote (%c) is not closed", *value);
        if (env_name_check(text, key_n) < 0)
            return error_set(e, ERR_INVALID, "'%.*s' is not a variable's name", (int)key_n, text);
        bool is_quoted = *value == '"' || *value == '\'';
        size_t value_n = (size_t)n - (is_quoted ? 2 : 0);
        const char *start = value + is_quoted;
        while (!is_quoted && value_n > 0 && is_blank(start[value_n - 1]))
            value_n--;
        if (put_pair(to, text, key_n, start, value_n, e) < 0)
            return -1;
        text = value + n;
    }
    return 0;
}

/* ---- printing ---- */

/* Text with its newlines indented, so that it continues the value above. */
static int put_lines(struct strbuf *to, const char *text, size_t n)
{
    int status = 0;
    for (size_t i = 0; i < n && status == 0; i++)
        status = text[i] == '\n' ? strbuf_adds(to, "\n    ") : strbuf_add(to, text + i, 1);
    return status;
}

int words_print_value(const char *key, const char *value, struct strbuf *to)
{
    if (strbuf_addf(to, "%s =%s", key, *value ? " " : "") < 0 ||
        put_lines(to, value, strlen(value)) < 0)
        return -1;
    return strbuf_adds(to, "\n");
}

static int put_literal(struct strbuf *to, const char *text, size_t n, const char *special)
{
    struct strbuf quoted = {0};
    bool is_plain = n > 0;
    for (size_t i = 0; i < n; i++)
        is_plain = is_plain && !strchr(special, text[i]);
    int status = is_plain ? strbuf_add(to, text, n) : quote_sh(&quoted, text, n);
    if (status == 0 && !is_plain)
        status = put_lines(to, strbuf_text(&quoted), quoted.len);
    strbuf_free(&quoted);
    return status;
}

/* A word of a script, whose variables the shell fills in. */
static int put_script_word(struct strbuf *to, const char *word, struct error *e)
{
    static const char special[] = " \t\n\r'\"\\$`*?[]{}()<>|&;#~!^";
    static const char mark[] = {EXPAND_VARIABLE, '\0'};
    bool is_lone = word[0] == EXPAND_VARIABLE && word[1] == EXPAND_VARIABLE;
    int status = 0;
    if (!*word)
        return put_literal(to, word, 0, special);
    for (word += is_lone; *word && status == 0;) {
        size_t n = strcspn(word, mark);
        status = n ? put_literal(to, word, n, special) : 0;
        word += n;
        if (!*word)
            break;
        word++;
        size_t name_n = strcspn(word, (const char[]){EXPAND_VARIABLE_END, '\0'});
        if (status == 0)
            status = strbuf_addf(to, is_lone ? "${%.*s}" : "\"${%.*s}\"", (int)name_n, word);
        word += name_n + (word[name_n] != '\0');
    }
    return status < 0 ? no_memory(e) : 0;
}

bool words_has_variable(const char *word)
{
    return strchr(word, EXPAND_VARIABLE) != NULL;
}

static int put_exports(const struct words *environment, struct strbuf *to, struct error *e)
{
    for (size_t i = 0; i < environment->count; i++) {
        const char *pair = environment->items[i];
        int n = (int)strcspn(pair, "=") + 1;
        if (words_has_variable(pair) &&
            (strbuf_addf(to, "    export %.*s", n, pair) < 0 ||
             put_script_word(to, pair + n, e) < 0 || strbuf_adds(to, "\n") < 0))
            return -1;
    }
    return 0;
}

int words_print_command(const struct words *command, const struct words *environment,
                        struct strbuf *to, struct error *e)
{
    bool is_script = false, is_split = false;
    no_memory(e); /* unless something else is said below */
    for (size_t i = 0; i < environment->count; i++)
        is_script = is_script || words_has_variable(environment->items[i]);
    for (size_t i = 0; i < command->count; i++) {
        const char *at = strchr(command->items[i], EXPAND_VARIABLE);
        is_script = is_script || at;
        is_split = is_split || (at && at[1] == EXPAND_VARIABLE);
    }
    if (strbuf_adds(to, is_script ? "script =\n" : "command =") < 0 ||
        put_exports(environment, to, e) < 0 ||
        (is_script && strbuf_addf(to, "    %sexec", is_split ? "set -f; " : "") < 0))
        return -1;
    for (size_t i = 0; i < command->count; i++) {
        const char *word = command->items[i];
        if (strbuf_adds(to, " ") < 0)
            return -1;
        int status = is_script ? put_script_word(to, word, e)
                               : put_literal(to, word, strlen(word), " \t\n\r'\"\\");
        if (status < 0)
            return -1;
    }
    return strbuf_adds(to, "\n");
}
