/*
 * The files of a configuration, read by a process of its own: a file system may never answer, and
 * who waits for it cannot be helped. That process reads the whole configuration as init would
 * and writes down, in the order in which it asked, what each file and folder gave it; init then
 * reads the configuration from that record alone. What is asked for depends on nothing but what was
 * given before, so both ask the same questions: an answer to another one ends the reading.
 *
 * A question is written before the file is touched: the last one without an answer tells what is
 * waited for. Every length is checked against the limits of config_internal.h. What a file of
 * variables gave is what they are in the end, so that init need not read through it once more: it
 * may have 60 MB of lines, and all of it for one variable.
 */
#include "config/config_internal.h"
#include "config/pattern.h"

#include "base/fd.h"

#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum kind { KIND_FILE = 1, KIND_FOLDER, KIND_ENV };

struct question {
    uint32_t kind;
    uint32_t path_n; /* the path follows */
};

struct answer {
    uint32_t is_failed;
    uint32_t code; /* of the error, and its errno; its text follows */
    int32_t sys;
    uint32_t text_n;
    uint64_t dev, ino;
    uint64_t bytes_n; /* these follow the text */
};

/* ---- writing ---- */

static int put(struct files *f, const void *bytes, size_t n)
{
    if (!f->is_broken && fd_write_all(f->fd, bytes, n) < 0)
        f->is_broken = true;
    return f->is_broken ? -1 : 0;
}

static void put_question(struct files *f, enum kind kind, const char *path)
{
    const struct question q = {.kind = kind, .path_n = (uint32_t)strlen(path)};
    (void)(put(f, &q, sizeof q) < 0 ? 0 : put(f, path, q.path_n));
}

static void put_answer(struct files *f, const struct answer *from, int status,
                       const struct strbuf *bytes, const struct error *why)
{
    struct answer a = *from;
    a.is_failed = status < 0;
    a.bytes_n = status < 0 ? 0 : bytes->len;
    if (status < 0) {
        a.code = why->code;
        a.sys = why->sys;
        a.text_n = (uint32_t)strlen(why->text);
    }
    if (put(f, &a, sizeof a) == 0 && put(f, why->text, a.text_n) == 0 && a.bytes_n > 0)
        (void)put(f, bytes->data, bytes->len);
}

/* ---- reading ---- */

int files_broken_off(struct error *e)
{
    return error_set(e, ERR_SYSTEM, "the reading of the files broke off");
}

static int take(struct files *f, void *to, size_t n)
{
    char *at = to;
    while (n > 0) {
        ssize_t k = pread(f->fd, at, n, f->at);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return -1;
        at += k;
        n -= (size_t)k;
        f->at += k;
    }
    return 0;
}

static int take_question(struct files *f, struct question *q, char path[PATH_MAX])
{
    if (take(f, q, sizeof *q) < 0 || q->path_n >= PATH_MAX || take(f, path, q->path_n) < 0)
        return -1;
    path[q->path_n] = '\0';
    return 0;
}

static int take_answer(struct files *f, struct answer *a, struct error *why)
{
    if (take(f, a, sizeof *a) < 0 || a->bytes_n > CONFIG_FILE_MAX ||
        a->text_n >= sizeof why->text || a->code >= ERR_CODE_COUNT ||
        take(f, why->text, a->text_n) < 0)
        return -1;
    why->text[a->text_n] = '\0';
    why->code = (enum error_code)a->code;
    why->sys = a->sys;
    return 0;
}

/* The answer to a question, which has to be the next. */
static int replay(struct files *f, enum kind kind, const char *path, struct strbuf *to,
                  struct answer *a, struct error *e)
{
    char asked[PATH_MAX];
    struct question q;
    if (take_question(f, &q, asked) < 0 || q.kind != kind || strcmp(asked, path) != 0 ||
        take_answer(f, a, e) < 0)
        return files_broken_off(e);
    if (a->is_failed)
        return -1;
    to->limit = CONFIG_FILE_MAX + 1;
    char *room = strbuf_reserve(to, (size_t)a->bytes_n);
    if (!room)
        return error_set(e, ERR_MEMORY, "%s: out of memory", shown_file(path));
    if (take(f, room, (size_t)a->bytes_n) < 0)
        return files_broken_off(e);
    to->len += (size_t)a->bytes_n;
    return 0;
}

/* ---- what a configuration asks for ---- */

/* The file itself. Who replays need not count: it is told of too many bytes, too. */
static int read_file(struct files *f, const char *path, struct strbuf *to, struct answer *a,
                     struct error *e)
{
    dev_t dev = 0;
    ino_t ino = 0;
    int status = file_read(path, to, &dev, &ino, e);
    a->dev = dev;
    a->ino = ino;
    f->bytes += to->len;
    if (status == 0 && f->bytes > CONFIG_READ_MAX)
        return error_set(e, ERR_INVALID, "all files, also those of env_file, are longer than 64M");
    return status;
}

static int read_env(struct files *f, const char *path, struct strbuf *to, struct answer *a,
                    struct error *e)
{
    CLEANUP_STRBUF struct strbuf text = {0};
    if (read_file(f, path, &text, a, e) < 0)
        return -1;
    if (text.len > CONFIG_ENV_MAX)
        return error_set(e, ERR_INVALID, "%s: longer than 1M", shown_file(path));
    return env_file_read(path, strbuf_text(&text), text.len, to, e);
}

static int look(struct files *f, enum kind kind, const char *path, struct strbuf *to,
                struct answer *a, struct error *e)
{
    switch (kind) {
    case KIND_FILE:
        return read_file(f, path, to, a, e);
    case KIND_FOLDER:
        return pattern_list(path, to, e);
    case KIND_ENV:
        return read_env(f, path, to, a, e);
    }
    return files_broken_off(e);
}

static int ask(struct files *f, enum kind kind, const char *path, struct strbuf *to,
               struct answer *a, struct error *e)
{
    if (strlen(path) >= PATH_MAX)
        return error_set_sys(e, ENAMETOOLONG, "%s", shown_file(path));
    if (++f->count > CONFIG_READS_MAX)
        return error_set(e, ERR_INVALID, "more than %u files are read, also those of env_file",
                         CONFIG_READS_MAX);
    if (f->mode == FILES_REPLAY)
        return replay(f, kind, path, to, a, e);
    if (f->mode == FILES_RECORD)
        put_question(f, kind, path);
    int status = look(f, kind, path, to, a, e);
    if (f->mode == FILES_RECORD)
        put_answer(f, a, status, to, e);
    return status;
}

int files_read(struct files *f, const char *path, struct strbuf *to, dev_t *dev, ino_t *ino,
               struct error *e)
{
    struct answer a = {0};
    struct error own = {0};
    int status = ask(f, KIND_FILE, path, to, &a, &own);
    *dev = (dev_t)a.dev;
    *ino = (ino_t)a.ino;
    if (status < 0 && e)
        *e = own;
    return status;
}

int files_env(struct files *f, const char *path, struct env_list *to, struct error *e)
{
    CLEANUP_STRBUF struct strbuf items = {0};
    struct answer a = {0};
    struct error own = {0};
    int status = ask(f, KIND_ENV, path, &items, &a, &own);
    if (status == 0)
        status = env_file_take(path, items.data, items.len, to, &f->env_bytes, &own);
    if (status < 0 && e)
        *e = own;
    return status;
}

char **files_match(struct files *f, const char *pattern, struct error *e)
{
    CLEANUP_STRBUF struct strbuf texts = {0};
    struct answer a = {0};
    struct error own = {0};
    char **paths = NULL;
    int status = ask(f, KIND_FOLDER, pattern, &texts, &a, &own);
    if (status == 0 && texts.len > 0 && texts.data[texts.len - 1] != '\0')
        status = files_broken_off(&own);
    if (status == 0)
        paths = pattern_sort(texts.data, texts.len, &own);
    if (!paths && e)
        *e = own;
    return paths;
}

/* ---- the whole ---- */

int config_record(const char *path, int fd)
{
    struct files files = {.mode = FILES_RECORD, .fd = fd};
    struct error ignored = {0}; /* who reads the record will come to it, too */
    config_free(config_load_from(path, &files, NULL, &ignored));
    return files.is_broken ? -1 : 0;
}

struct config *config_replay(const char *path, int fd, char *const *environ_, struct error *e)
{
    struct files files = {.mode = FILES_REPLAY, .fd = fd};
    return config_load_from(path, &files, environ_, e);
}

bool config_record_waits(int fd, char *path, size_t size)
{
    struct files f = {.mode = FILES_REPLAY, .fd = fd};
    char asked[PATH_MAX];
    struct question q;
    struct answer a;
    struct error why;
    for (unsigned i = 0; i < CONFIG_READS_MAX && take_question(&f, &q, asked) == 0; i++) {
        if (take_answer(&f, &a, &why) < 0) {
            size_t n = strlen(asked);
            memcpy(path, asked, n < size ? n : size - 1);
            path[n < size ? n : size - 1] = '\0';
            return true;
        }
        f.at += (off_t)a.bytes_n;
    }
    return false;
}
