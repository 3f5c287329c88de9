#include "gateway/helper_tar.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct header { /* POSIX.1-1988 ustar, pax(1) */
    char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type, linkname[100],
        magic[6], version[2], uname[32], gname[32], devmajor[8], devminor[8], prefix[155], pad[12];
};
_Static_assert(sizeof(struct header) == TAR_BLOCK, "a tar header is one block");

/* digits octal digits and a NUL. */
static void octal(char *field, size_t digits, uint64_t value)
{
    for (size_t i = digits; i-- > 0; value >>= 3)
        field[i] = (char)('0' + (value & 7));
    field[digits] = '\0';
}

static void number(char *field, size_t size, uint64_t value)
{
    if (value >> (3 * (size - 1)) == 0) {
        octal(field, size - 1, value);
        return;
    }
    for (size_t i = size; i-- > 0; value >>= 8)
        field[i] = (char)(value & 255);
    field[0] = (char)0x80;
}

static int add_block(struct strbuf *to, struct header *h)
{
    unsigned sum = 0;
    memcpy(h->magic, "ustar", 6);
    memcpy(h->version, "00", 2);
    memset(h->checksum, ' ', sizeof h->checksum);
    for (size_t i = 0; i < sizeof *h; i++)
        sum += ((const unsigned char *)h)[i];
    octal(h->checksum, 6, sum);
    return strbuf_add(to, h, sizeof *h);
}

/* Name and prefix, if the path fits into them. */
static int split(struct header *h, const char *path)
{
    size_t n = strlen(path);
    if (n <= sizeof h->name) {
        memcpy(h->name, path, n);
        return 0;
    }
    if (n > sizeof h->prefix + 1 + sizeof h->name)
        return -1;
    /* the first slash that leaves a name that fits; a folder's last one is part of its name */
    const char *slash = strchr(path + n - sizeof h->name - 1, '/');
    if (!slash || slash == path || !slash[1] || (size_t)(slash - path) > sizeof h->prefix)
        return -1;
    memcpy(h->prefix, path, (size_t)(slash - path));
    memcpy(h->name, slash + 1, n - (size_t)(slash - path) - 1);
    return 0;
}

/* "LENGTH KEY=VALUE\n", where LENGTH counts itself. */
static int add_pax(struct strbuf *to, const char *key, const char *value)
{
    size_t rest = strlen(key) + strlen(value) + 3, length = rest;
    char digits[24];
    for (size_t before = 0; length != before;) {
        before = length;
        length = rest + (size_t)snprintf(digits, sizeof digits, "%zu", length);
    }
    return strbuf_addf(to, "%zu %s=%s\n", length, key, value);
}

static int pad_block(struct strbuf *to)
{
    static const char zeros[TAR_BLOCK];
    return strbuf_add(to, zeros, (TAR_BLOCK - to->len % TAR_BLOCK) % TAR_BLOCK);
}

static int add_extended(struct strbuf *to, const struct strbuf *records)
{
    struct header h = {.type = 'x'};
    memcpy(h.name, "./PaxHeaders/member", sizeof "./PaxHeaders/member");
    octal(h.mode, 7, 0644);
    octal(h.uid, 7, 0);
    octal(h.gid, 7, 0);
    octal(h.mtime, 11, 0);
    octal(h.size, 11, records->len);
    if (add_block(to, &h) < 0 || strbuf_add(to, records->data, records->len) < 0)
        return -1;
    return pad_block(to);
}

static void fill(struct header *h, const struct stat *st)
{
    octal(h->mode, 7, st->st_mode & 07777);
    number(h->uid, sizeof h->uid, st->st_uid);
    number(h->gid, sizeof h->gid, st->st_gid);
    number(h->size, sizeof h->size, h->type == '0' ? (uint64_t)st->st_size : 0);
    number(h->mtime, sizeof h->mtime, st->st_mtime > 0 ? (uint64_t)st->st_mtime : 0);
}

int tar_add_member(struct strbuf *to, const char *path, const struct stat *st, const char *target)
{
    struct header h = {.type = '0'};
    CLEANUP_STRBUF struct strbuf pax = {0};
    if (target)
        h.type = '2';
    else if (S_ISDIR(st->st_mode))
        h.type = '5';
    if (split(&h, path) < 0) {
        memcpy(h.name, path, sizeof h.name); /* for readers that know no PAX */
        if (add_pax(&pax, "path", path) < 0)
            return -1;
    }
    if (target) {
        size_t n = strlen(target);
        memcpy(h.linkname, target, n < sizeof h.linkname ? n : sizeof h.linkname);
        if (n > sizeof h.linkname && add_pax(&pax, "linkpath", target) < 0)
            return -1;
    }
    if (pax.len > 0 && add_extended(to, &pax) < 0)
        return -1;
    fill(&h, st);
    return add_block(to, &h);
}
