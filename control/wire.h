/*
 * The control protocol, shared by init's server and by the client library. docs/control-protocol.md
 * tells verbs and keys; this header fixes the packets.
 *
 * A Unix SOCK_SEQPACKET socket: the kernel frames, so nobody parses a stream. One connection is
 * one operation. The first packet from the client is the request:
 *
 *     VERB NUL KEY=VALUE NUL KEY=VALUE NUL …            at most WIRE_PACKET_MAX bytes
 *
 * Values hold any byte but NUL; a key may come several times. Three keys have a meaning for the
 * transport: `args_size=N` announces N more bytes of KEY=VALUE NUL strings on channel WIRE_ARGS,
 * `text_size=N` announces N bytes of command text on channel WIRE_TEXT (a short text stands in
 * the request as `text=`), in this order and in as many packets as needed. Every packet but the
 * request is a channel byte followed by payload.
 *
 * The server answers with packets of rows and output and ends with exactly one WIRE_RESULT or
 * WIRE_ERROR packet, then closes. Closing the connection is how a client leaves.
 *
 * A record (rows, results, errors) is a sequence of NUL-terminated strings `KEY=VALUE` (a string)
 * or `KEY:=VALUE` (a JSON number, true, false or null); a key that ends in `[]` is one element of
 * a list and may come several times. control/record.h builds and reads them.
 */
#ifndef CONTROL_WIRE_H
#define CONTROL_WIRE_H

#define WIRE_PACKET_MAX  65536 /* bytes in one packet, the channel byte included */
#define WIRE_PAYLOAD_MAX (WIRE_PACKET_MAX - 1)
#define WIRE_ARGS_MAX    (4 * 1024 * 1024) /* bytes of arguments in one request */

/* Channels from client to server. */
#define WIRE_ARGS   'a' /* further arguments of the request */
#define WIRE_TEXT   't' /* command text */
#define WIRE_STDIN  'i' /* bytes for the command's stdin; an empty payload is its end of file */
#define WIRE_RESIZE 'w' /* the window of this viewer of a terminal: "ROWS COLS" */
#define WIRE_SIGNAL                                                                                \
    'k' /* kill what this connection runs (payload: signal name, empty: teardown)                  \
         */

/* Channels from server to client. */
#define WIRE_STDOUT 'o'
#define WIRE_STDERR 'e'
#define WIRE_NOTE   'n' /* a record about the stream itself: started, lost FROM..TO */
#define WIRE_ROW    'l' /* one row of a list */
#define WIRE_RESULT 'r' /* the last packet: a record */
#define WIRE_ERROR  'x' /* the last packet instead: record with code, errno, message */

/* On the socket that init gives the gateway at its start (SOCK_SEQPACKET, too), without answers:
 * packets of one byte, each with exactly one descriptor, the end of a SOCK_SEQPACKET pair … */
#define WIRE_HAND_CONNECTION 'c' /* it is served like a connection of the control socket */
#define WIRE_HAND_HELPER     'f' /* a file helper is started with it as its descriptor 3 */
/* … and words: a byte and at most WIRE_WORDS_MAX bytes of text, without a descriptor. */
#define WIRE_SAY_END     'e' /* it cannot work, and ends: why */
#define WIRE_SAY_TROUBLE 't' /* it works, but something is wrong: what; "": nothing (any more) */
#define WIRE_WORDS_MAX   512

#endif
