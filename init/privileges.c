/*
 * What init's own capabilities allow, told once at start (capabilities(7)). Nothing here changes
 * them: each operation is tried and fails with its errno; this only says beforehand what will.
 */
#include "init/init.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>
#include <sys/capability.h>
#include <unistd.h>

static const struct need {
    cap_value_t capability;
    const char *what; /* does not work without it */
} needs[] = {
    {CAP_SETUID, "sessions and processes as other users"},
    {CAP_SETGID, "groups of other users"},
    {CAP_CHOWN, "files of sessions of other users"},
    {CAP_DAC_OVERRIDE, "commands of sessions of other users"}, /* FIFOs that are theirs, 0600 */
    {CAP_KILL, "signals to processes of other users"},
};

void privileges_tell(struct init *in)
{
    char what[200] = "";
    cap_t own = cap_get_proc();
    for (size_t i = 0; own && i < sizeof needs / sizeof needs[0]; i++) {
        cap_flag_value_t has = CAP_CLEAR;
        if (cap_get_flag(own, needs[i].capability, CAP_EFFECTIVE, &has) == 0 && has == CAP_SET)
            continue;
        size_t n = strlen(what);
        snprintf(what + n, sizeof what - n, "%s%s", n ? "; " : "", needs[i].what);
    }
    if (own)
        cap_free(own);
    if (what[0])
        init_tell_off(in, what, geteuid() == 0 ? "capabilities were dropped" : "init is not root");
}
