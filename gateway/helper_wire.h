/*
 * Between the gateway and the file helper, a process of the sessions' user. The gateway holds one
 * SOCK_SEQPACKET socket to the helper and sends descriptors on it, one in a packet of the byte
 * HELPER_CONNECTION: each is the other end of a socketpair (SOCK_SEQPACKET, too) and carries one
 * operation. A worker, forked for it, reads one HELPER_REQUEST there, answers, and ends.
 *
 *     gateway  REQUEST  [DATA … END]              END: that was all, make it so
 *     worker   [BEGIN] [DATA | ROW …]  END | ERROR
 *
 * Closing the connection is how the gateway calls an operation off. Every packet is a channel byte
 * and a payload; requests, BEGIN, ROW, END and ERROR are records (control/record.h).
 *
 *     op=open path=P                BEGIN size mtime_ns inode, and the file's descriptor; if the
 *                                   file system may hang there is none and streamed=1: then the
 *                                   gateway sends DATA "OFFSET LENGTH", gets DATA, and END
 *     op=put path=P                 DATA … END: the file's content
 *     op=stat path=P [follow=1]     END with the record of a file (file_record(), helper_worker.h)
 *     op=list path=P [after=NAME] [limit=N]    BEGIN, ROW per entry, END [next=NAME]
 *     op=mkdir path=P               END made
 *     op=rename path=P to=P [keep=1]
 *     op=delete path=P [recursive=1]
 *     op=empty
 *     op=watch path=P               BEGIN, ROW kind path [to] per event, until it is called off
 *     op=archive [exclude=PATTERN …]           BEGIN, DATA: a tar
 *     op=extract                    DATA … END: a tar
 *
 * A path is relative to the workspace, "" is the workspace itself.
 *
 * Neither side trusts the other's lengths; the gateway takes what a worker says for the word of the
 * sessions' user, who could have written it (ptrace, a debugger, a bug).
 */
#ifndef GATEWAY_HELPER_WIRE_H
#define GATEWAY_HELPER_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define HELPER_CONNECTION 'n'

#define HELPER_PACKET_MAX 65536 /* bytes of one packet, the channel byte included */
#define HELPER_DATA_MAX   (HELPER_PACKET_MAX - 1)

#define HELPER_REQUEST 'q'
#define HELPER_BEGIN   'b'
#define HELPER_DATA    'd'
#define HELPER_ROW     'l'
#define HELPER_END     'e'
#define HELPER_ERROR   'x' /* errno (0: none) and message */

/* Receive one packet into buf, of HELPER_PACKET_MAX bytes. Returns its length (> 0); 0: the other
 * side is gone; -1 with errno: EAGAIN, or EPROTO for one that is too long or brings more than one
 * descriptor. *fd is the descriptor that came with it, close-on-exec and the caller's, or -1. */
ssize_t helper_receive(int sock, char *buf, int *fd);

/* Send one packet; fd -1: without a descriptor. 0, or -1 with errno (EAGAIN, EPIPE, …). */
int helper_send(int sock, char channel, const void *bytes, size_t n, int fd);

/* True if the n bytes are a whole record (nothing malformed). */
bool helper_is_record(const char *bytes, size_t n);

/* The number that a record has under a key, if it is 0 … max; else `otherwise`. */
long long helper_number(const char *bytes, size_t n, const char *key, long long max,
                        long long otherwise);

#endif
