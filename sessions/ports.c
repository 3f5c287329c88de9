/*
 * In init's own network namespace the kernel is asked for listening sockets alone (sock_diag(7)):
 * reading /proc/net/tcp goes through the hash table of all connections, 3 ms here with none at all.
 * The tables in /proc serve for other namespaces, and where the kernel has no sock_diag. Only a
 * process that has a socket at all makes either necessary.
 */
#include "sessions/ports.h"
#include "base/clock.h"
#include "base/fd.h"
#include "sessions/proc.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define LISTENERS_MAX 512
#define TABLE_BYTES                                                                                \
    ((size_t)128 * 1024) /* read of one table; those that listen come first in tcp */
#define LINKS_MAX       4096
#define TIME_NS         (20 * 1000000ull)
#define TCP_LISTEN      0x0a /* include/net/tcp_states.h */
#define UDP_UNCONNECTED 0x07

struct listener {
    uint64_t inode;
    unsigned char address[16];
    uint16_t port;
    bool is_v6, is_udp;
};

void ports_begin(struct ports *p)
{
    *p = (struct ports){.until_ns = clock_mono_ns() + TIME_NS, .links_left = LINKS_MAX};
}

void ports_end(struct ports *p)
{
    free(p->listeners);
    p->listeners = NULL;
}

/* ---- asking the kernel ---- */

struct question {
    struct nlmsghdr head;
    struct inet_diag_req_v2 body;
};

static void add_answer(struct ports *p, const struct inet_diag_msg *m, const struct listener *kind)
{
    struct listener l = *kind;
    if (p->count == LISTENERS_MAX)
        return;
    l.inode = m->idiag_inode;
    l.port = ntohs(m->id.idiag_sport);
    memcpy(l.address, m->id.idiag_src, sizeof l.address);
    p->listeners[p->count++] = l;
}

/* Take one packet of answers: 1 there are more, 0 that was the end, -1 the kernel refuses. */
static int take_answers(struct ports *p, int fd, const struct listener *kind)
{
    _Alignas(struct nlmsghdr) char packet[16384];
    ssize_t n = recv(fd, packet, sizeof packet, MSG_DONTWAIT);
    if (n <= 0)
        return -1;
    size_t left = (size_t)n;
    const struct nlmsghdr *h = (const void *)packet;
    for (; NLMSG_OK(h, left); h = NLMSG_NEXT(h, left)) {
        if (h->nlmsg_type == NLMSG_DONE)
            return 0;
        if (h->nlmsg_type == NLMSG_ERROR ||
            h->nlmsg_len < NLMSG_LENGTH(sizeof(struct inet_diag_msg)))
            return -1;
        add_answer(p, NLMSG_DATA(h), kind);
    }
    return 1;
}

/* The sockets of one kind that listen in init's own namespace. 0, or -1. */
static int ask(struct ports *p, const struct listener *kind)
{
    struct question q = {
        .head = {.nlmsg_len = sizeof q,
                 .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                 .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
        .body = {.sdiag_family = kind->is_v6 ? AF_INET6 : AF_INET,
                 .sdiag_protocol = kind->is_udp ? IPPROTO_UDP : IPPROTO_TCP,
                 .idiag_states = 1u << (kind->is_udp ? UDP_UNCONNECTED : TCP_LISTEN)}};
    CLEANUP_FD int fd =
        socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_SOCK_DIAG);
    if (fd < 0 || send(fd, &q, sizeof q, MSG_DONTWAIT) != (ssize_t)sizeof q)
        return -1;
    int more;
    do
        more = take_answers(p, fd, kind);
    while (more > 0 && p->count < LISTENERS_MAX && clock_mono_ns() < p->until_ns);
    return more < 0 ? -1 : 0;
}

/* ---- the tables ---- */

/* "0100007F" or 32 such digits: words of 32 bits, each in the order of this machine. */
static bool parse_address(const char *hex, size_t digits, unsigned char address[16])
{
    for (size_t i = 0; i < digits; i += 8) {
        char word[9] = "", *end;
        memcpy(word, hex + i, 8);
        uint32_t value = (uint32_t)strtoul(word, &end, 16);
        if (*end)
            return false;
        memcpy(address + i / 2, &value, sizeof value);
    }
    return true;
}

/* "  0: 0100007F:1F90 00000000:0000 0A 0:0 0:0 0 uid 0 inode …" */
static bool parse_line(char *line, struct listener *l)
{
    char *field[10], *save = NULL;
    size_t n = 0;
    for (char *w = strtok_r(line, " ", &save); w && n < 10; w = strtok_r(NULL, " ", &save))
        field[n++] = w;
    size_t digits = l->is_v6 ? 32 : 8;
    if (n < 10 || strlen(field[1]) < digits + 2 || field[1][digits] != ':')
        return false;
    if (strtoul(field[3], NULL, 16) != (l->is_udp ? UDP_UNCONNECTED : TCP_LISTEN))
        return false;
    l->port = (uint16_t)strtoul(field[1] + digits + 1, NULL, 16);
    l->inode = strtoull(field[9], NULL, 10);
    return l->inode != 0 && parse_address(field[1], digits, l->address);
}

static void add_lines(struct ports *p, char *text, const struct listener *kind)
{
    char *save = NULL;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        struct listener l = *kind;
        if (p->count < LISTENERS_MAX && parse_line(line, &l))
            p->listeners[p->count++] = l;
    }
}

static void read_table(struct ports *p, pid_t pid, const char *name, const struct listener *kind)
{
    char path[64], chunk[4096 + 256];
    size_t kept = 0, total = 0;
    snprintf(path, sizeof path, "/proc/%d/net/%s", (int)pid, name);
    CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && total < TABLE_BYTES && clock_mono_ns() < p->until_ns) {
        ssize_t n = read(fd, chunk + kept, 4096 + 255 - kept);
        if (n <= 0)
            break;
        total += (size_t)n;
        kept += (size_t)n;
        chunk[kept] = '\0';
        char *last = strrchr(chunk, '\n');
        if (!last) {
            kept = 0; /* no such line is so long */
            continue;
        }
        *last = '\0';
        size_t rest = kept - (size_t)(last + 1 - chunk);
        add_lines(p, chunk, kind);
        memmove(chunk, last + 1, rest);
        kept = rest < 255 ? rest : 0;
    }
}

/* Have the listeners of the network namespace of pid at hand. 0, or -1 with errno. */
static int read_listeners(struct ports *p, pid_t pid)
{
    static const struct {
        const char *name;
        struct listener kind;
    } tables[] = {{"tcp", {0}},
                  {"tcp6", {.is_v6 = true}},
                  {"udp", {.is_udp = true}},
                  {"udp6", {.is_v6 = true, .is_udp = true}}};
    char path[64];
    struct stat st, own;
    snprintf(path, sizeof path, "/proc/%d/ns/net", (int)pid);
    if (stat(path, &st) < 0)
        return -1;
    if (p->namespace_inode == st.st_ino)
        return 0;
    if (!p->listeners && !(p->listeners = malloc(LISTENERS_MAX * sizeof *p->listeners)))
        return -1;
    bool is_own = stat("/proc/self/ns/net", &own) == 0 && own.st_ino == st.st_ino;
    p->namespace_inode = st.st_ino;
    p->count = 0;
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
        if (!is_own || ask(p, &tables[i].kind) < 0)
            read_table(p, pid, tables[i].name, &tables[i].kind);
    return 0;
}

/* ---- the descriptors ---- */

/* The inode of a link "socket:[123]", or 0. */
static uint64_t socket_inode(int dir, const char *name)
{
    char link[64];
    ssize_t n = readlinkat(dir, name, link, sizeof link - 1);
    link[n > 0 ? n : 0] = '\0';
    return strncmp(link, "socket:[", 8) == 0 ? strtoull(link + 8, NULL, 10) : 0;
}

static void add_port(const struct listener *l, char *buf, size_t size)
{
    char address[INET6_ADDRSTRLEN] = "", one[96];
    size_t used = strlen(buf);
    inet_ntop(l->is_v6 ? AF_INET6 : AF_INET, l->address, address, sizeof address);
    int n = snprintf(one, sizeof one, l->is_v6 ? "%s%s:[%s]:%u" : "%s%s:%s:%u", used ? "," : "",
                     l->is_udp ? "udp" : "tcp", address, (unsigned)l->port);
    const char *more = ",…"; /* not all of them fit */
    if (n > 0 && used + (size_t)n + strlen(more) < size)
        memcpy(buf + used, one, (size_t)n + 1);
    else if (used + strlen(more) < size && !strstr(buf, more))
        memcpy(buf + used, more, strlen(more) + 1);
}

static void add_ports_of(const struct ports *p, uint64_t inode, char *buf, size_t size)
{
    for (size_t i = 0; i < p->count; i++)
        if (p->listeners[i].inode == inode)
            add_port(&p->listeners[i], buf, size);
}

/* "?" where the links are there and may not be read. */
static void add_ports(struct ports *p, pid_t pid, char *buf, size_t size)
{
    char path[64];
    bool is_read = false, is_denied = false;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *dir = opendir(path);
    if (!dir)
        is_denied = errno == EACCES || errno == EPERM;
    const struct dirent *entry;
    while (dir && p->links_left > 0 && clock_mono_ns() < p->until_ns && (entry = readdir(dir))) {
        p->links_left--;
        errno = 0;
        uint64_t inode = socket_inode(dirfd(dir), entry->d_name);
        is_denied = is_denied || errno == EACCES || errno == EPERM;
        if (!inode)
            continue;
        if (!is_read && read_listeners(p, pid) < 0)
            break;
        is_read = true;
        add_ports_of(p, inode, buf, size);
    }
    if (dir)
        closedir(dir);
    if (is_denied && !buf[0])
        snprintf(buf, size, "?");
}

void ports_of(struct ports *p, pid_t pid, char *buf, size_t size)
{
    buf[0] = '\0';
    if (p->links_left == 0 || clock_mono_ns() >= p->until_ns)
        return;
    bool is_as_owner = proc_look_as_owner(pid);
    add_ports(p, pid, buf, size);
    if (is_as_owner)
        proc_as_self();
}
