/*
 * The file helper: `sandbox-gateway --file-helper`, a process of the sessions' user. It forks a
 * worker per operation (helper_wire.h), so that a slow file system or a large tree holds up one
 * operation and no other. Only the helper and its workers run this module.
 */
#ifndef GATEWAY_HELPER_WORKER_H
#define GATEWAY_HELPER_WORKER_H

#include "base/error.h"
#include "control/record.h"
#include "gateway/helper_root.h"
#include "gateway/helper_wire.h"

/* `--file-helper --workspace=DIR`: serve the gateway on descriptor 3 until it is gone. Returns the
 * exit status. */
int file_helper_main(int argc, char *const *argv);

/* One operation. */
struct worker {
    int sock; /* to the gateway */
    const char *workspace;
    struct root root;
    bool has_no_workspace; /* root could not be opened */
    struct record result;  /* for END */
    size_t n;
    char request[HELPER_PACKET_MAX]; /* n bytes: a record */
    char packet[HELPER_PACKET_MAX];  /* scratch */
};

/* What the request says; NULL: nothing. */
const char *worker_argument(const struct worker *w, const char *key);
bool worker_flag(const struct worker *w, const char *key);

/* What the worker tells the gateway; waits for room. -1 with *e set: the gateway hung up. */
int worker_send(struct worker *w, char channel, const void *bytes, size_t n, struct error *e);
/* Send r as BEGIN or ROW, with a descriptor if fd >= 0, and free it. */
int worker_send_record(struct worker *w, char channel, struct record *r, int fd, struct error *e);
/* The next packet of the body is in w->packet: its length, 0 at END, -1 with *e set. */
ssize_t worker_receive(struct worker *w, struct error *e);

/* Fails with the text "<what> <path as clients write it>: <errno>". */
int worker_fail(const struct worker *w, const char *what, const char *path, struct error *e);

/* Type, size, mode, owner, times of a file as fields; dir and name to read a link's target, too. */
void file_record(struct record *r, const struct stat *st, int dir, const char *name);

/* True for a file that a put collects its content in: no file of anybody's, and not told. */
bool is_put_temporary(const char *name, const struct stat *st);
/* True if it may be one by its name. */
bool is_put_name(const char *name);
/* The same for the file of that name, which is removed if it is one and its worker is dead. */
bool put_sweep(int dir, const char *name);

/* The operations: 0 (END follows), or -1 with *e set (ERROR follows). */
int worker_open(struct worker *w, struct error *e);    /* helper_open.c */
int worker_put(struct worker *w, struct error *e);     /* helper_put.c */
int worker_stat(struct worker *w, struct error *e);    /* helper_list.c */
int worker_list(struct worker *w, struct error *e);    /* helper_list.c */
int worker_mkdir(struct worker *w, struct error *e);   /* helper_change.c */
int worker_rename(struct worker *w, struct error *e);  /* helper_change.c */
int worker_delete(struct worker *w, struct error *e);  /* helper_change.c */
int worker_empty(struct worker *w, struct error *e);   /* helper_change.c */
int worker_watch(struct worker *w, struct error *e);   /* helper_watch.c */
int worker_archive(struct worker *w, struct error *e); /* helper_archive.c */
int worker_extract(struct worker *w, struct error *e); /* helper_extract.c */

#endif
