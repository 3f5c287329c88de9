#include "sessions/shell.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/number.h"
#include "base/strbuf.h"
#include "sessions/driver.h"
#include "sessions/proc.h"
#include "sessions/spawn.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STATUS_READS  256 /* of one look, if somebody fills the FIFO */
#define SILENCE_S     1.0 /* a shell that owes a status is looked at this often */
#define LAST_S        2.  /* as a teardown gives those that it kills */
#define OWN_ORDER_MAX 20  /* so many looks a start or a dump may take */

/* "SEQUENCE STATUS FLAGS", as the driver writes it. Anything else is the user's doing: ignored. */
static void take_line(struct shell *s, char *line)
{
    char *status_text = strchr(line, ' ');
    if (!status_text)
        return;
    *status_text++ = '\0';
    char *flags = strchr(status_text, ' ');
    if (!flags)
        return;
    *flags++ = '\0';
    uint64_t sequence, status;
    if (number_parse_u64(line, UINT64_MAX, &sequence) < 0 ||
        number_parse_u64(status_text, 255, &status) < 0)
        return;
    if (sequence != s->sequence || !s->owes_status)
        return;
    if (flags[0] == '?') {
        s->events->on_state_broken(s->owner);
        return;
    }
    if (flags[0] == '/') {
        s->events->on_no_program(s->owner, (int)status);
        return;
    }
    s->owes_status = false;
    ev_timer_stop(s->loop, &s->silence);
    if (s->child)
        child_has_executed(s->child);
    s->events->on_status(s->owner, sequence, (int)status, flags);
}

/* Returns how many bytes were there, at most 256. */
static ssize_t take_statuses(struct shell *s)
{
    char buf[256];
    ssize_t k = read(s->status_fd, buf, sizeof buf);
    for (ssize_t i = 0; i < k; i++) {
        if (buf[i] != '\n') {
            /* An overlong line cannot be the driver's; its rest is dropped with it. */
            if (s->line_len < sizeof s->line - 1)
                s->line[s->line_len++] = buf[i];
            continue;
        }
        s->line[s->line_len] = '\0';
        s->line_len = 0;
        take_line(s, s->line);
    }
    return k;
}

static void on_status_readable(struct ev_loop *loop, ev_io *w, int events)
{
    (void)loop;
    (void)events;
    take_statuses(w->data);
}

/* True if the process sleeps in a read(2) of its script: it waits for orders. The system call and
 * its first argument stand in /proc/PID/syscall (proc(5)). What has just started may not be a shell
 * at all (cat) and keep its script anywhere: it has taken all orders, and reads on. */
static bool is_reading_orders(const struct shell *s)
{
    char path[40], text[128];
    int left = 0;
    snprintf(path, sizeof path, "/proc/%d/syscall", (int)s->pid);
    bool is_as_owner = proc_look_as_owner(s->pid);
    long n = fd_read_file(AT_FDCWD, path, text, sizeof text);
    if (is_as_owner)
        proc_as_self();
    if (n <= 0)
        return false;
    char *end;
    unsigned long number = strtoul(text, &end, 10);
    if (end == text || number != SYS_read)
        return false;
    if (s->script_fd < 0)
        return s->silences > 1 && ioctl(s->control, FIONREAD, &left) == 0 && left == 0;
    return strtoul(end, NULL, 16) == (unsigned long)s->script_fd;
}

static bool found_one(void *context, pid_t child)
{
    (void)child;
    *(bool *)context = true;
    return false;
}

static void on_silence(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)loop;
    (void)events;
    struct shell *s = w->data;
    bool has_child = false;
    if (!s->child || !s->owes_status)
        return;
    s->silences++;
    /* Stopped by its own child while it was idle: an order of ours has no clock that would end the
     * wait, and commands stand behind it. */
    struct proc_stat st;
    if (s->is_own_order && proc_stat_read(s->pid, &st) == 0 && st.state == 'T')
        child_signal(s->child, SIGCONT);
    bool is_late = s->is_own_order && s->silences >= OWN_ORDER_MAX;
    if (!is_late &&
        (!is_reading_orders(s) || proc_children(s->pid, found_one, &has_child) < 0 || has_child))
        return;
    /* It may have carried out its order and be back just now: then the status is there to be read.
     */
    for (int i = 0; i < STATUS_READS && s->owes_status && take_statuses(s) > 0; i++)
        continue;
    if (s->child && s->owes_status)
        s->events->on_deaf(s->owner);
}

static int open_status(struct shell *s, const struct user *user, struct error *e)
{
    s->status_fd = workdir_fifo(s->dir, "status", user, e);
    if (s->status_fd < 0)
        return -1;
    ev_io_init(&s->status_io, on_status_readable, s->status_fd, EV_READ);
    s->status_io.data = s;
    ev_io_start(s->loop, &s->status_io);
    return 0;
}

/* A shell of before may have deleted the FIFO or put something else in its place. */
static int renew_status(struct shell *s, const struct user *user, struct error *e)
{
    if (workdir_has(s->dir, "status", s->status_fd))
        return 0;
    ev_io_stop(s->loop, &s->status_io);
    fd_close(&s->status_fd);
    return open_status(s, user, e);
}

static void on_last(struct ev_loop *loop, ev_timer *w, int events);

int shell_init(struct shell *s, struct ev_loop *loop, const struct workdir *dir,
               const struct user *user, const struct shell_events *events, void *owner,
               struct error *e)
{
    *s = (struct shell){.loop = loop, .dir = dir, .events = events, .owner = owner};
    s->control = -1;
    s->script_fd = -1;
    ev_timer_init(&s->silence, on_silence, SILENCE_S, SILENCE_S);
    s->silence.data = s;
    ev_timer_init(&s->last, on_last, 0., LAST_S);
    s->last.data = s;
    return open_status(s, user, e);
}

static void let_go(struct shell *s)
{
    ev_timer_stop(s->loop, &s->silence);
    ev_timer_stop(s->loop, &s->last);
    fd_close(&s->control);
    s->child = NULL;
    s->pid = 0;
    s->script_fd = -1;
    s->owes_status = false;
}

void shell_forget(struct shell *s)
{
    if (s->child)
        child_forget(s->child);
    let_go(s);
}

void shell_release(struct shell *s)
{
    if (!s->loop)
        return;
    shell_forget(s);
    ev_io_stop(s->loop, &s->status_io);
    fd_close(&s->status_fd);
}

static void on_child_exit(void *context, const struct child_exit *how)
{
    struct shell *s = context;
    unsigned place = s->past_count++ % SHELL_PAST;
    s->past[place].pid = s->pid;
    s->past[place].ended_ticks = proc_ticks_now();
    let_go(s);
    s->events->on_end(s->owner, how);
}

/* Nothing ends it (state D): whoever waits for its end goes on without. It is reaped when it can
 * die. */
static void on_last(struct ev_loop *loop, ev_timer *w, int events)
{
    static const struct child_exit killed = {.status = SIGKILL};
    struct shell *s = w->data;
    (void)loop, (void)events;
    LOG_WRN("shell_stuck", F_INT("pid", s->pid),
            F_STR("why", "it is still there after SIGKILL; another one takes its place"));
    child_forget(s->child);
    s->stuck_pid = s->pid;
    on_child_exit(s, &killed);
}

/* Write whole lines of orders. The pipe of a shell that reads is empty, so it takes them at once.
 */
static int order(struct shell *s, const char *lines, int n, struct error *e)
{
    if (n < 0)
        return error_set(e, ERR_MEMORY, "order to the shell: no memory");
    ssize_t k = s->control < 0 ? -1 : write(s->control, lines, (size_t)n);
    if (k == n)
        return 0;
    return error_set_sys(e, k < 0 ? errno : EAGAIN, "order to the shell (pid %d)", (int)s->pid);
}

static uint64_t begin_order(struct shell *s, bool is_own)
{
    s->owes_status = true;
    s->is_own_order = is_own;
    s->silences = 0;
    ev_timer_again(s->loop, &s->silence);
    return ++s->sequence;
}

/* The driver with its folder put in, as a file of the session's folder. */
static int write_driver(const struct shell *s, const struct user *user, struct error *e)
{
    CLEANUP_STRBUF struct strbuf text = {0};
    CLEANUP_FD int driver = workdir_file(s->dir, "driver", user, e);
    CLEANUP_FD int back = driver < 0 ? -1 : workdir_file(s->dir, "back", user, e);
    if (back < 0)
        return -1;
    const char *from = s->kind == SHELL_BASH ? driver_bash : driver_posix;
    for (const char *at; (at = strstr(from, "@DIR@")); from = at + 5)
        if (strbuf_add(&text, from, (size_t)(at - from)) < 0 ||
            strbuf_adds(&text, s->dir->path) < 0)
            return error_set(e, ERR_MEMORY, "driver: no memory");
    if (strbuf_adds(&text, from) < 0)
        return error_set(e, ERR_MEMORY, "driver: no memory");
    static const char back_text[] = "\\command cd -- \"$PWD\"\n";
    if (workdir_fill(s->dir, driver, "driver", text.data, text.len, e) < 0)
        return -1;
    return workdir_fill(s->dir, back, "back", back_text, sizeof back_text - 1, e);
}

/* The state is whole only if its last line was reached: else the line with the flag "?" says so.
 * The driver comes after the state of bash, which holds functions, and before that of the others.
 */
static int first_order(const struct shell *s, char *lines, size_t size, uint64_t sequence)
{
    const char *d = s->dir->path;
    bool is_bash = s->kind == SHELL_BASH;
    unsigned long long number = sequence;
    return snprintf(lines, size,
                    "exec 3<&-\n%s%s%s\\command . %s/state >/dev/null 2>&1 || "
                    "\\command printf '%%s\\n' '%llu 125 ?' >%s/status\n%s%s%s\\__sb_end %llu 0\n",
                    is_bash ? "" : "\\command . ", is_bash ? "" : d, is_bash ? "" : "/driver\n", d,
                    number, d, is_bash ? "\\command . " : "", is_bash ? d : "",
                    is_bash ? "/driver\n" : "", number);
}

/* The pipe that orders go through: our end into s, the shell's into *script. */
static int open_control(struct shell *s, const struct shell_plan *plan, int *script,
                        struct error *e)
{
    int ends[2];
    struct stat st;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return error_set_sys(e, errno, "shell %s: pipe", plan->path);
    *script = ends[0];
    s->control = ends[1];
    if (fstat(*script, &st) < 0)
        return error_set_sys(e, errno, "shell %s: pipe", plan->path);
    s->control_inode = st.st_ino;
    fcntl(s->control, F_SETFL, O_WRONLY | O_NONBLOCK);
    /* The shell opens the pipe anew by its name in /proc, which needs the right owner. */
    if (plan->user && plan->user->uid != geteuid() &&
        fchown(*script, plan->user->uid, plan->user->gid) < 0)
        return error_set_sys(e, errno, "shell %s: chown of its script", plan->path);
    return 0;
}

/* What the shell is called, which tells some what they are. */
static const char *name_of(const struct shell *s, const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    if (s->kind == SHELL_BASH)
        return "bash"; /* called sh, it would end at the state's readonly variables */
    return strcmp(name, "busybox") == 0 ? "ash" : name;
}

static int spawn_shell(struct shell *s, const struct shell_plan *plan, int script, struct error *e)
{
    const char *argv[] = {name_of(s, plan->path), "/proc/self/fd/3", NULL};
    const char *envp[] = {plan->mark, NULL};
    struct spawn_plan sp = spawn_plan_empty();
    sp.program = plan->path;
    sp.argv = argv;
    sp.envp = envp;
    sp.script_fd = script;
    sp.cwd = plan->cwd;
    sp.user = plan->user;
    sp.is_subreaper = true;
    sp.cgroup_fd = plan->cgroup_fd;
    sp.cgroup_is_new = plan->cgroup_is_new;
    sp.on_exit = on_child_exit;
    sp.context = s;
    s->child = spawn(&sp, e);
    if (!s->child)
        return -1;
    s->pid = s->child->pid;
    s->line_len = 0;
    return 0;
}

uint64_t shell_start(struct shell *s, const struct shell_plan *plan, struct error *e)
{
    CLEANUP_FD int script = -1;
    char lines[2048];
    s->kind = strcmp(plan->family, "bash") == 0 ? SHELL_BASH : SHELL_POSIX;
    s->is_ash = strcmp(plan->family, "ash") == 0;
    if (write_driver(s, plan->user, e) < 0 || renew_status(s, plan->user, e) < 0)
        return 0;
    if (open_control(s, plan, &script, e) < 0 || spawn_shell(s, plan, script, e) < 0) {
        fd_close(&s->control);
        return 0;
    }
    uint64_t sequence = begin_order(s, true);
    int n = first_order(s, lines, sizeof lines, sequence);
    if (order(s, lines, n, e) < 0) {
        shell_kill(s);
        return 0;
    }
    return sequence;
}

/* The number under which the shell holds its script: bash 255, dash and ash 10 or a bit more. */
static int find_script_fd(const struct shell *s)
{
    char path[48], link[64], want[64];
    int found = -1;
    bool is_as_owner = proc_look_as_owner(s->pid);
    snprintf(want, sizeof want, "pipe:[%llu]", (unsigned long long)s->control_inode);
    for (int fd = s->kind == SHELL_BASH ? 255 : 10; fd < 256 && found < 0; fd++) {
        snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)s->pid, fd);
        ssize_t k = readlink(path, link, sizeof link - 1);
        if (k > 0 && (link[k] = '\0', strcmp(link, want) == 0))
            found = fd;
    }
    if (is_as_owner)
        proc_as_self();
    return found;
}

bool shell_is_sound(const struct shell *s)
{
    char path[48], link[64], want[64];
    if (!s->child)
        return false;
    if (s->script_fd < 0)
        return true; /* /proc does not show descriptors (another user, no privilege) */
    snprintf(want, sizeof want, "pipe:[%llu]", (unsigned long long)s->control_inode);
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)s->pid, s->script_fd);
    ssize_t k = readlink(path, link, sizeof link - 1);
    if (k < 0 && errno == EACCES && proc_look_as_owner(s->pid)) {
        k = readlink(path, link, sizeof link - 1);
        proc_as_self();
    }
    if (k <= 0)
        return errno == EACCES;
    link[k] = '\0';
    return strcmp(link, want) == 0;
}

bool shell_led(const struct shell *s, pid_t sid, uint64_t start_ticks)
{
    for (size_t i = 0; i < SHELL_PAST; i++)
        if (s->past[i].pid == sid && sid > 0 && start_ticks <= s->past[i].ended_ticks)
            return true;
    return false;
}

uint64_t shell_run(struct shell *s, const struct shell_text *how, struct error *e)
{
    char lines[2048], run[1280];
    const char *d = s->dir->path;
    if (s->script_fd < 0)
        s->script_fd = find_script_fd(s);
    uint64_t sequence = begin_order(s, false);
    /* ash: a child of it that an error unwinds to a `command .` within the eval spins for ever (its
     * popallfiles() looks for a file that the child has closed; seen with busybox 1.35). */
    snprintf(run, sizeof run, "%s. %s/%s <%s >%s/out 2>%s%s", s->is_ash ? "\\" : "\\command ", d,
             how->file, how->stdin_path, d, how->opens_err ? d : "/dev/null",
             how->opens_err ? "/err" : "");
    /* In bash one compound command: it is parsed whole before the text can hurt the parser. In dash
     * and ash the eval is where an interrupted text unwinds to; the trap is armed inside it only.
     */
    bool is_bash = s->kind == SHELL_BASH;
    const char *end = how->touches_signals ? "settle" : "end";
    /* ERR and RETURN traps are cleared out here: bash puts them back when __sb_end returns. */
    int n = snprintf(lines, sizeof lines,
                     is_bash ? "%s\\__sb_arm %d ''\n{ %s\n\\__sb_%s %llu \"$?\"\n"
                               "builtin trap - ERR RETURN\n}\n"
                             : "%s\\command eval '\\__sb_arm %d; %s; \\__sb_disarm \"$?\"'\n"
                               "\\__sb_%s %llu \"$?\"\n",
                     how->touches_signals && !is_bash ? "\\__sb_guard\n" : "", how->last_status,
                     run, end, (unsigned long long)sequence);
    if (n > 0 && how->restores_cwd)
        n += snprintf(lines + n, sizeof lines - (size_t)n,
                      "OLDPWD=${OLDPWD-} \\command . %s/back\n", d);
    return order(s, lines, n, e) < 0 ? 0 : sequence;
}

uint64_t shell_poke(struct shell *s, struct error *e)
{
    char lines[64];
    uint64_t sequence = begin_order(s, true);
    int n = snprintf(lines, sizeof lines, "(:)\n\\__sb_end %llu 0\n", (unsigned long long)sequence);
    return order(s, lines, n, e) < 0 ? 0 : sequence;
}

uint64_t shell_dump(struct shell *s, const char *file, struct error *e)
{
    char lines[1024], then[512] = "";
    uint64_t sequence = begin_order(s, true);
    if (file)
        snprintf(then, sizeof then, "\\command . %s/%s\n", s->dir->path, file);
    int n = snprintf(lines, sizeof lines, "\\__sb_dump \"$@\" || \\:\n%s\\__sb_end %llu 0\n", then,
                     (unsigned long long)sequence);
    return order(s, lines, n, e) < 0 ? 0 : sequence;
}

/* A text may have stopped its own shell, which then takes no signal (case: kill -STOP $$). */
static bool send(const struct shell *s, int sig)
{
    struct proc_stat st;
    if (!s->child || !proc_catches(s->pid, sig) || child_signal(s->child, sig) < 0)
        return false;
    if (proc_stat_read(s->pid, &st) == 0 && st.state == 'T')
        child_signal(s->child, SIGCONT);
    return true;
}

bool shell_interrupt(const struct shell *s)
{
    return send(s, SHELL_SIGNAL);
}

bool shell_ask_to_end(const struct shell *s)
{
    return s->kind == SHELL_BASH && send(s, SHELL_END_SIGNAL);
}

void shell_kill(struct shell *s)
{
    if (!s->child)
        return;
    child_signal(s->child, SIGKILL);
    if (!ev_is_active(&s->last))
        ev_timer_again(s->loop, &s->last);
}
