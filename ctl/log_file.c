/*
 * sandboxctl logs --file: a log that the log writer left on a disk (base/frame.h), read without
 * init. Bytes that are no frame (a torn write, a file that is none) are left out and told.
 */
#include "ctl/logs.h"

#include "base/fd.h"
#include "base/frame.h"
#include "base/number.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct walk {
    struct logs *logs;
    const char *path;
    uint64_t from; /* print what lies here or behind */
    uint64_t at;   /* offset of the next payload byte */
    bool is_begun; /* "from" was told */
    bool wants[2];
};

/* Takes the record. */
static int tell(struct walk *w, struct record *note)
{
    int code = logs_take_note(w->logs, note->bytes.data, note->bytes.len);
    record_free(note);
    return code;
}

static int begin(struct walk *w)
{
    struct record note = {0};
    if (w->is_begun)
        return 0;
    w->is_begun = true;
    record_int(&note, "from", (int64_t)(w->at > w->from ? w->at : w->from));
    return tell(w, &note);
}

static int take_loss(struct walk *w, uint64_t from, uint64_t to)
{
    struct record note = {0};
    w->at = to;
    if (to <= w->from)
        return 0;
    record_int(&note, "lost_from", (int64_t)from);
    record_int(&note, "lost_to", (int64_t)to);
    return tell(w, &note);
}

static int take_frame(struct walk *w, const struct frame_head *h, const char *payload)
{
    uint64_t from, to, run;
    size_t n = h->length;
    if (h->kind == FRAME_NOTE) {
        if (frame_note_lost(payload, n, &from, &to))
            return take_loss(w, from, to);
        if (!frame_note_offset(payload, n, &to, &run))
            return 0;
        int code = w->is_begun && to > w->at ? take_loss(w, w->at, to) : 0;
        w->at = to;
        return code;
    }
    int code = begin(w);
    uint64_t skip = w->at < w->from ? w->from - w->at : 0;
    w->at += n;
    if (code != 0 || !w->wants[h->kind] || skip >= n)
        return code;
    return logs_take_output(w->logs, h->kind == FRAME_STDERR, payload + skip, n - skip);
}

static int finish(struct walk *w, uint64_t skipped)
{
    if (skipped)
        fprintf(stderr, "sandboxctl logs: %s: %" PRIu64 " bytes are no frame and were skipped\n",
                w->path, skipped);
    int code = begin(w);
    struct record done = {0};
    record_int(&done, "to", (int64_t)w->at);
    code = code ? code : logs_finish(w->logs, done.bytes.data, done.bytes.len);
    record_free(&done);
    return code;
}

static int complain(const char *path, int sys)
{
    fprintf(stderr, "sandboxctl logs: %s: %s\n", path, strerror(sys));
    return CTL_REFUSED;
}

int logs_read_file(struct logs *l, const char *path)
{
    const struct args *a = l->args;
    bool wants_out = args_has(a, "stdout"), wants_err = args_has(a, "stderr");
    struct walk w = {
        .logs = l, .path = path, .wants = {wants_out || !wants_err, wants_err || !wants_out}};
    if (args_has(a, "tail") || l->follows)
        return usage_error(a->verb, "--file goes with neither --tail nor --follow");
    if (args_get(a, "from") && number_parse_u64(args_get(a, "from"), INT64_MAX, &w.from) < 0)
        return usage_error(a->verb, "--from: '%s' is not a number", args_get(a, "from"));
    CLEANUP_FD int fd =
        strcmp(path, "-") == 0 ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC);
    struct frame_reader r = {0};
    if (fd < 0 || frame_reader_init(&r, fd) < 0)
        return complain(path, errno);
    struct frame_head h;
    const char *payload;
    int got = 0, code = 0;
    while (code == 0 && (got = frame_reader_next(&r, &h, &payload)) > 0)
        code = take_frame(&w, &h, payload);
    if (code == 0)
        code = got < 0 ? complain(path, errno) : finish(&w, r.skipped);
    frame_reader_free(&r);
    return code;
}
