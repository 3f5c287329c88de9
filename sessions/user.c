#include "sessions/user.h"
#include "base/number.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINE_BYTES  4096
#define TABLE_BYTES ((size_t)16 << 20) /* of /etc/passwd and /etc/group that are looked at */
#define ID_MAX      4294967294u        /* (uid_t)-1 means "unchanged" in setuid(2) and its kin */

/* Split a line at colons into at most max fields, in place. */
static size_t split(char *line, char **fields, size_t max)
{
    size_t n = 0;
    line[strcspn(line, "\n")] = '\0';
    for (char *p = line; p && n < max;) {
        fields[n++] = p;
        p = strchr(p, ':');
        if (p)
            *p++ = '\0';
    }
    return n;
}

/* A container's root may have put anything there: what could block is no file, and what never ends
 * is cut. NULL: there is none. */
static FILE *open_table(const char *path)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return NULL;
    FILE *f = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? fdopen(fd, "r") : NULL;
    if (!f)
        close(fd);
    return f;
}

/* Call each() for the fields of every line until it returns true. Overlong lines are cut, which
 * only shortens a group's list of members. A missing file is an empty one. */
static bool each_line(const char *path, bool (*each)(void *context, char **fields, size_t n),
                      void *context)
{
    char line[LINE_BYTES];
    char *fields[8];
    FILE *f = open_table(path);
    if (!f)
        return false;
    bool found = false;
    size_t left = TABLE_BYTES;
    while (!found && left > 0 && fgets(line, sizeof line, f)) {
        bool is_cut = !strchr(line, '\n');
        size_t n = split(line, fields, 8);
        found = each(context, fields, n);
        left -= left < sizeof line ? left : strlen(line) + 1;
        for (int c; is_cut && left > 0 && (c = getc_unlocked(f)) != EOF && c != '\n';)
            left--;
    }
    fclose(f);
    return found;
}

static int parse_id(const char *text, unsigned *out)
{
    uint64_t v;
    if (number_parse_u64(text, ID_MAX, &v) < 0)
        return -1;
    *out = (unsigned)v;
    return 0;
}

struct passwd_query {
    const char *name; /* or NULL: by uid */
    unsigned uid;
    struct user *out;
};

static bool match_passwd(void *context, char **f, size_t n)
{
    struct passwd_query *q = context;
    unsigned uid, gid;
    if (n < 6 || parse_id(f[2], &uid) < 0 || parse_id(f[3], &gid) < 0)
        return false;
    if (q->name ? strcmp(f[0], q->name) != 0 : uid != q->uid)
        return false;
    q->out->uid = uid;
    q->out->gid = gid;
    snprintf(q->out->name, sizeof q->out->name, "%s", f[0]);
    snprintf(q->out->home, sizeof q->out->home, "%s", *f[5] ? f[5] : "/");
    return true;
}

struct group_query {
    const char *name;
    unsigned gid;
};

static bool match_group(void *context, char **f, size_t n)
{
    struct group_query *q = context;
    return n >= 3 && strcmp(f[0], q->name) == 0 && parse_id(f[2], &q->gid) == 0;
}

/* Add the group if the user's name stands in its list of members. */
static bool collect_group(void *context, char **f, size_t n)
{
    struct user *u = context;
    unsigned gid;
    if (n < 4 || parse_id(f[2], &gid) < 0)
        return false;
    size_t len = strlen(u->name);
    for (char *p = f[3]; *p;) {
        size_t k = strcspn(p, ",");
        if (k == len && memcmp(p, u->name, len) == 0 && u->group_count < USER_GROUPS_MAX)
            u->groups[u->group_count++] = gid;
        p += k + (p[k] == ',');
    }
    return false;
}

static int find_group(const char *text, unsigned *gid, struct error *e)
{
    struct group_query q = {.name = text};
    if (parse_id(text, gid) == 0)
        return 0;
    if (!each_line("/etc/group", match_group, &q))
        return error_set(e, ERR_INVALID, "group '%s': not in /etc/group", text);
    *gid = q.gid;
    return 0;
}

int user_lookup(const char *text, struct user *out, struct error *e)
{
    char name[64];
    const char *colon = strchr(text, ':');
    size_t len = colon ? (size_t)(colon - text) : strlen(text);
    if (len == 0 || len >= sizeof name)
        return error_set(e, ERR_INVALID, "user '%s': not a user name", text);
    memcpy(name, text, len);
    name[len] = '\0';

    memset(out, 0, sizeof *out);
    struct passwd_query q = {.name = name, .out = out};
    bool is_number = parse_id(name, &q.uid) == 0;
    if (is_number)
        q.name = NULL;
    if (!each_line("/etc/passwd", match_passwd, &q)) {
        if (!is_number)
            return error_set(e, ERR_INVALID, "user '%s': not in /etc/passwd", name);
        out->uid = q.uid;
        out->gid = q.uid;
        snprintf(out->home, sizeof out->home, "/");
    }
    unsigned gid = out->gid;
    if (colon && find_group(colon + 1, &gid, e) < 0)
        return error_wrap(e, "user '%s'", text);
    out->gid = gid;
    out->groups[out->group_count++] = gid;
    if (out->name[0])
        each_line("/etc/group", collect_group, out);
    return 0;
}

static int add_group(struct user *u, const char *name, size_t len, struct error *e)
{
    char text[64];
    unsigned gid = 0;
    if (len >= sizeof text)
        return error_set(e, ERR_INVALID, "group '%.64s…': not a group name", name);
    memcpy(text, name, len);
    text[len] = '\0';
    if (find_group(text, &gid, e) < 0)
        return -1;
    if (u->group_count == USER_GROUPS_MAX)
        return error_set(e, ERR_LIMIT, "groups: more than %d", USER_GROUPS_MAX);
    u->groups[u->group_count++] = gid;
    return 0;
}

int user_set_groups(struct user *u, const char *group, const char *groups, struct error *e)
{
    unsigned gid = u->gid;
    if (group && find_group(group, &gid, e) < 0)
        return -1;
    if (u->group_count == 0)
        u->group_count = 1;
    u->gid = u->groups[0] = gid;
    if (!groups)
        return 0;
    u->group_count = 1;
    for (const char *p = groups + strspn(groups, " \t"); *p; p += strspn(p, " \t")) {
        size_t n = strcspn(p, " \t");
        if (add_group(u, p, n, e) < 0)
            return -1;
        p += n;
    }
    return 0;
}

void user_self(struct user *out)
{
    memset(out, 0, sizeof *out);
    struct passwd_query q = {.uid = geteuid(), .out = out};
    if (!each_line("/etc/passwd", match_passwd, &q))
        snprintf(out->home, sizeof out->home, "/");
    out->uid = geteuid();
    out->gid = getegid();
}

void user_give_pipe(const struct user *user, int fd)
{
    if (user && fchown(fd, user->uid, user->gid) < 0)
        return; /* it can still be written to, as it is */
}

const char *user_text(const struct user *u, char *buf, size_t size)
{
    if (u->name[0])
        return u->name;
    snprintf(buf, size, "%u", (unsigned)u->uid);
    return buf;
}
