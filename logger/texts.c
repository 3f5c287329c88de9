/*
 * Each packet is tried once: what can't be written is told, the file is forgotten, and init sends
 * it again later. So a full disk or a missing folder holds up no other file.
 */
#include "logger/texts.h"
#include "base/list.h"
#include "logger/packet.h"
#include "logger/text_file.h"

#include <stdlib.h>
#include <string.h>

#define OPEN_MAX 128 /* files open at the same time */

struct texts {
    struct list files; /* struct text_file */
    struct list in_use;
};

static void on_written(struct text_file *f)
{
    struct logger_message m = {.kind = LOGGER_TEXT_WRITTEN, .number = f->number, .offset = f->end};
    struct logger_place place = f->place;
    if (f->has_tail) /* it is not known yet whose bytes those are */
        place.size = f->tail_from;
    packet_send(&m, &place, sizeof place);
}

static void tell(uint32_t kind, const struct text_file *f, const char *text)
{
    struct logger_message m = {.kind = kind, .number = f->number};
    packet_send(&m, text, strlen(text));
}

static struct text_file *find(struct texts *all, uint32_t number)
{
    list_each(f, &all->files, struct text_file, link) if (f->number == number) return f;
    return NULL;
}

static void forget(struct text_file *f)
{
    text_file_close(f);
    list_remove(&f->link);
    free(f->path);
    free(f);
}

static struct text_file *add(struct texts *all, const struct packet *p)
{
    struct logger_text text;
    struct text_file *old = find(all, p->m.number);
    if (old)
        forget(old);
    if (p->n <= sizeof text)
        return NULL;
    struct text_file *f = calloc(1, sizeof *f);
    if (!f || !(f->path = strdup(p->payload + sizeof text))) {
        free(f);
        return NULL;
    }
    memcpy(&text, p->payload, sizeof text);
    f->number = p->m.number;
    f->max_size = text.max_size;
    f->keep = (unsigned)text.keep;
    f->place = text.place;
    f->end = p->m.offset;
    f->fd = -1;
    f->on_written = on_written;
    list_init(&f->use_link);
    list_append(&all->files, &f->link);
    return f;
}

/* It was used last; the one that was used longest ago is closed when there are too many. */
static void note_use(struct texts *all, struct text_file *f)
{
    unsigned open_files = 0;
    list_remove(&f->use_link);
    if (f->fd >= 0)
        list_append(&all->in_use, &f->use_link);
    list_each(g, &all->in_use, struct text_file, use_link) open_files++;
    if (open_files > OPEN_MAX)
        text_file_close(list_entry(all->in_use.next, struct text_file, use_link));
}

static int carry_out(struct text_file *f, const struct packet *p, struct error *e)
{
    char before[sizeof f->note];
    memcpy(before, f->note, sizeof before);
    int rc = p->m.kind == LOGGER_TEXT_BEGIN ? text_file_begin(f, e)
             : p->m.offset == f->end        ? text_file_append(f, p->payload, p->n, e)
                                     : error_set(e, ERR_PROTOCOL, "log %.200s: a gap", f->path);
    if (strcmp(before, f->note) != 0)
        tell(LOGGER_TEXT_NOTE, f, f->note);
    return rc;
}

static void serve(struct texts *all, const struct packet *p)
{
    struct error e = {0};
    struct text_file *f = p->m.kind == LOGGER_TEXT_BEGIN ? add(all, p) : find(all, p->m.number);
    if (!f) /* it has failed, and what was on its way comes again */
        return;
    if (p->m.kind == LOGGER_TEXT_CLOSE) {
        forget(f);
    } else if (carry_out(f, p, &e) < 0) {
        tell(LOGGER_TEXT_FAILED, f, e.text);
        forget(f);
    } else {
        note_use(all, f);
    }
}

void texts_run(void)
{
    static struct packet p;
    struct texts all;
    list_init(&all.files);
    list_init(&all.in_use);
    while (packet_receive(&p, 0) > 0)
        serve(&all, &p);
}
