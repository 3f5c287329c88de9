/*
 * The log writer's loop: one packet after the other, in their order, each until it is done. A disk
 * that takes nothing now (full, read-only, gone) holds up all of them, and init is told once; what
 * is wrong with one file alone costs that file only. After each turn init hears how far the files
 * are.
 */
#include "logger/logger.h"
#include "base/fd.h"
#include "base/number.h"
#include "logger/ended.h"
#include "logger/log_file.h"
#include "logger/packet.h"
#include "logger/texts.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/capability.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUCKETS  256
#define OPEN_MAX 128 /* files open at the same time */
#define RETRY_MS 200

#define TURN_PACKETS 64 /* taken before files are looked at anew */

struct writer {
    struct log_folder folder;
    struct list files[BUCKETS]; /* struct log_file */
    struct list in_use;         /* those that are open */
    struct ended ended;
    bool is_loaded; /* ended was filled from the folder */
    bool is_in_trouble;
};

static void say(uint32_t kind, uint32_t number, uint64_t offset, const char *text)
{
    struct logger_message m = {.kind = kind, .number = number, .offset = offset};
    packet_send(&m, text, strlen(text));
}

/* ---- the files ---- */

static struct list *bucket_of(struct writer *w, uint32_t number)
{
    return &w->files[number % BUCKETS];
}

static struct log_file *find(struct writer *w, uint32_t number)
{
    list_each(f, bucket_of(w, number), struct log_file, link) if (f->number == number) return f;
    return NULL;
}

/* The file of a LOGGER_BEGIN; NULL: no memory, or no name. */
static struct log_file *add(struct writer *w, const struct packet *p)
{
    struct log_file *f = find(w, p->m.number);
    if (f || name_check(p->payload) < 0 || !(f = calloc(1, sizeof *f)))
        return f;
    f->number = p->m.number;
    f->run = p->m.run;
    f->fd = -1;
    snprintf(f->id, sizeof f->id, "%.*s", LOGGER_ID_MAX, p->payload);
    list_init(&f->use_link);
    list_append(bucket_of(w, f->number), &f->link);
    return f;
}

static void forget(struct log_file *f)
{
    log_file_close(f);
    list_remove(&f->link);
    free(f);
}

/* It was used last; the one that was used longest ago is closed when there are too many. */
static void note_use(struct writer *w, struct log_file *f)
{
    unsigned open_files = 0;
    list_remove(&f->use_link);
    if (f->fd >= 0)
        list_append(&w->in_use, &f->use_link);
    list_each(g, &w->in_use, struct log_file, use_link) open_files++;
    if (open_files > OPEN_MAX)
        log_file_close(list_entry(w->in_use.next, struct log_file, use_link));
}

static int put(struct writer *w, const struct log_file *f, const char *suffix,
               const struct packet *p, struct error *e)
{
    char name[LOGGER_ID_MAX + 8];
    snprintf(name, sizeof name, "%s.%s", f->id, suffix);
    if (log_folder_open(&w->folder, e) < 0)
        return -1;
    return log_folder_put(&w->folder, name, p->payload, p->n, e);
}

/* ---- one packet ---- */

/* What is wrong with one name of the folder and not with the disk. */
static bool is_of_one_file(const struct error *e)
{
    return e->sys == EISDIR || e->sys == ENOTEMPTY || e->sys == EEXIST || e->sys == ELOOP ||
           e->sys == ENXIO;
}

/* What earlier writers have left is looked for when the folder can be read. */
static int load_ended(struct writer *w, struct error *e)
{
    if (w->is_loaded)
        return 0;
    if (log_folder_open(&w->folder, e) < 0)
        return -1;
    ended_load(&w->ended, &w->folder);
    w->is_loaded = true;
    return 0;
}

/* Do what a packet asks for, or -1 with *e: it may be tried again. */
static int carry_out(struct writer *w, struct log_file *f, const struct packet *p, struct error *e)
{
    const struct logger_message *m = &p->m;
    switch ((enum logger_kind)m->kind) {
    case LOGGER_BEGIN:
        if (load_ended(w, e) < 0)
            return -1;
        ended_remove(&w->ended, f->id);
        return log_file_begin(f, &w->folder, m->offset, m->to, e);
    case LOGGER_PID:
        return put(w, f, "pid", p, e);
    case LOGGER_BYTES:
        return log_file_append(f, &w->folder, m->frame, m->offset, p->payload, p->n, m->time_ns, e);
    case LOGGER_LOST:
        log_file_lose(f, m->offset, m->to);
        return log_file_tell_loss(f, &w->folder, e);
    case LOGGER_EXIT:
        if (f->has_loss && log_file_tell_loss(f, &w->folder, e) < 0 && !is_of_one_file(e))
            return -1;
        return put(w, f, "exit", p, e);
    default:
        return 0;
    }
}

/* Wait until it is worth trying again. init's end is ours. */
static void wait_for_disk(struct writer *w, const struct error *e)
{
    struct pollfd p = {.fd = SOCKET_FD};
    if (!w->is_in_trouble)
        say(LOGGER_TROUBLE, 0, 0, e->text);
    w->is_in_trouble = true;
    if (poll(&p, 1, RETRY_MS) > 0)
        exit(1);
    w->folder.turn++;
}

/* A file that can't be written goes without; that is told in it if it ever can. */
static void give_up(struct log_file *f, const struct packet *p, const struct error *e)
{
    if (!f->is_failing)
        say(LOGGER_TROUBLE, f->number, 0, e->text);
    f->is_failing = true;
    if (p->m.kind == LOGGER_BYTES)
        log_file_lose(f, f->end, p->m.offset + p->n);
}

static void serve(struct writer *w, struct packet *p)
{
    struct error e = {0};
    struct log_file *f = p->m.kind == LOGGER_BEGIN ? add(w, p) : find(w, p->m.number);
    if (!f)
        return;
    if (p->m.kind == LOGGER_CLOSE) {
        ended_add(&w->ended, &w->folder, f->id);
        forget(f);
        return;
    }
    int rc;
    while ((rc = carry_out(w, f, p, &e)) < 0 && !is_of_one_file(&e))
        wait_for_disk(w, &e);
    if (rc < 0)
        give_up(f, p, &e);
    else if (w->is_in_trouble)
        say(LOGGER_RECOVERED, 0, 0, "");
    w->is_in_trouble = w->is_in_trouble && rc < 0;
    f->is_dirty = true;
    note_use(w, f);
    if (p->m.kind == LOGGER_EXIT)
        say(LOGGER_EXIT_WRITTEN, f->number, f->end, "");
}

/* ---- the loop ---- */

/* Tell init how far the files are, and look at them anew in the next turn. */
static void end_turn(struct writer *w)
{
    for (size_t i = 0; i < BUCKETS; i++)
        list_each(f, &w->files[i], struct log_file, link)
        {
            if (f->is_dirty)
                say(LOGGER_WRITTEN, f->number, f->end, "");
            f->is_dirty = false;
        }
    w->folder.turn++;
}

static void run(struct writer *w)
{
    static struct packet p;
    for (;;) {
        int got = packet_receive(&p, 0);
        if (got < 0) /* the socket itself is broken */
            return;
        for (unsigned i = 0; got > 0; i++) {
            serve(w, &p);
            if (i == TURN_PACKETS)
                break;
            got = packet_receive(&p, MSG_DONTWAIT);
        }
        end_turn(w);
        if (got == 0)
            return;
    }
}

/* Nothing but its own files: no capability, and no program that it could start would get any. */
static void drop_privileges(void)
{
    cap_t nothing = cap_init();
    if (nothing)
        (void)cap_set_proc(nothing);
    cap_free(nothing);
    (void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    (void)prctl(PR_SET_NAME, "log-writer");
}

static int parse(int count, char **args, struct writer *w)
{
    uint64_t files, age_ms, keep;
    if (count != 5 || number_parse_u64(args[1], INT64_MAX, &w->folder.file_size) < 0 ||
        number_parse_u64(args[2], 1000, &files) < 0 ||
        number_parse_u64(args[3], INT64_MAX / 1000000, &age_ms) < 0 ||
        number_parse_u64(args[4], 1000000, &keep) < 0 || ended_init(&w->ended, keep) < 0)
        return -1;
    w->folder.path = args[0];
    w->folder.files = (unsigned)files;
    w->folder.file_age_ns = age_ms * 1000000u;
    list_init(&w->in_use);
    for (size_t i = 0; i < BUCKETS; i++)
        list_init(&w->files[i]);
    return 0;
}

int logger_main(int count, char **args)
{
    static struct writer w = {.folder = {.fd = -1, .turn = 1}};
    bool is_of_texts = count == 1 && strcmp(args[0], LOGGER_FILES) == 0;
    if (!is_of_texts && parse(count, args, &w) < 0) {
        fprintf(stderr, "sandbox-init %s is for sandbox-init itself\n", LOGGER_OPTION);
        return 2;
    }
    /* It ends with its socket: what the container's processes say at their end still comes. */
    static const int ignored[] = {SIGTERM, SIGINT, SIGHUP, SIGPIPE, SIGXFSZ};
    for (size_t i = 0; i < sizeof ignored / sizeof ignored[0]; i++)
        signal(ignored[i], SIG_IGN);
    drop_privileges();
    umask(is_of_texts ? 0 : 077);
    if (is_of_texts)
        texts_run();
    else
        run(&w);
    return 0;
}
