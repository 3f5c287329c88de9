# shellcheck shell=dash
# shellcheck disable=SC2172 # a real-time signal has no portable name
# shellcheck disable=SC2016,SC1001,SC2064,SC2139 # what is expanded when, is meant so
# The driver of a dash or busybox ash session; driver.bash.sh tells the idea. These shells cannot
# print functions, and unwind an interrupted text by a parameter error instead of a DEBUG trap. (A
# text that made the name readonly is unwound by the failing unset.) It is sourced before the state:
# no function of the state can hide it, and the user's aliases don't apply to it.

# Both run inside the `command eval` that an interrupted text unwinds to. Outside of the text the
# error would end the shell: there the signal does nothing.
__sb_arm() {
    \trap '{ __sb_unwind; } 2>/dev/null' 40
    \return "$1"
}
# While a text runs, the shell has its file open, behind its script and what it saved of the order's
# redirections. The file goes with the unwinding, or at the end of the text.
# Asked twice, since a trap within this trap leaves the $? of before both in the place of the one of
# a test: then one of the two says no. (A second one in a text never returns.)
__sb_unwind() {
    \unset -f command
    for __sb_n in 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31; do
        for __sb_w in text call; do
            if \command [ "/proc/self/fd/$__sb_n" -ef "@DIR@/$__sb_w" ]; then
                if \command [ ! "/proc/self/fd/$__sb_n" -ef "@DIR@/$__sb_w" ]; then
                    \:
                else
                    __sb_fail
                fi
            fi
        done
    done
}
# A text unwinds to the innermost `command eval` or `command .` of its own, and the signal that is
# sent anew is taken before the next statement. (One from a statement of the trap would be taken
# within it; so a substitution sends it, and another one, should the teardown that is at work have
# come upon the first.)
__sb_fail() {
    \unset __sb_unset_name __sb_w
    # shellcheck disable=SC2154
    : "${__sb_unset_name?${__sb_w:=$(__sb_again)}${__sb_w:=$(__sb_again)}${__sb_w:=$(__sb_again)}}"
}
__sb_again() {
    \command kill -40 "$$" && \command printf .
}
__sb_disarm() {
    \trap : 40
    \return "$1"
}
# An error in a subshell of ash (`(: ${x?})`, with -u, a readonly variable) unwinds the child to the
# eval around its parent's text, behind which it would go on with the rest of the order. It ends.
__sb_is_child() {
    \unset -f command # a text's own would answer that this is a child, and the shell would end
    \command eval 'IFS=" " \command read -r __sb_p __sb_n </proc/self/stat' 2>/dev/null || __sb_p=
    __sb_is_other "$__sb_p"
}

__sb_end() {
    \trap : 40
    case $2 in
    0) ;;
    *) __sb_is_child && \exit "$2" ;;
    esac
    \unset -f command
    \command unset __sb_n __sb_w
    \command printf '%d %d %s\n' "$1" "$2" "$-" >@DIR@/status
}

# These shells run no EXIT trap when a signal ends them. A text that says kill, and so might send
# one, runs between these two; an idle shell must not have such traps, since it would not run them.
__sb_guard() {
    __sb_signals=' HUP INT PIPE ALRM TERM USR1 USR2 '
    __sb_each_trap __sb_drop_signal
    IFS=' ' \command eval 'for __sb_p in $__sb_signals; do
        \trap "__sb_die $__sb_p \"\$@\"" "$__sb_p"
    done'
    \unset __sb_signals __sb_p
}
__sb_drop_signal() {
    case $__sb_signals in
    *" $3 "*) __sb_signals="${__sb_signals%% "$3" *} ${__sb_signals#* "$3" }" ;;
    esac
}
__sb_settle() {
    \trap : 40
    case $2 in
    0) ;;
    *) __sb_is_child && \exit "$2" ;;
    esac
    \unset -f command
    __sb_p='"$?" "$@"
'
    __sb_each_trap __sb_settle_trap
    \trap "__sb_exit $__sb_p" EXIT
    \unset __sb_p
    __sb_end "$@"
}
__sb_settle_trap() {
    case $3:$2 in
    EXIT:"__sb_exit "*) __sb_p=${2#* } ;;
    EXIT:*) __sb_p=$__sb_p$2 ;;
    *:"__sb_die "*) \trap - "$3" ;;
    esac
}

# Call the function $1 as `FUNCTION -- ACTION SIGNAL` for each trap: what `trap` prints is sourced
# with an alias, since a function cannot hide a special builtin.
__sb_each_trap() {
    \trap >|@DIR@/state
    \alias trap="$1"
    \command . @DIR@/state
    \unalias trap
}

__sb_die() {
    __sb_signal=$1
    \shift
    __sb_dump "$@" || \:
    \trap - "$__sb_signal"
    \command kill -"$__sb_signal" $$
}

# No function can be printed. Positional parameters are printed as variables __sb_1, __sb_2 …;
# aliases come last, since they change how the rest would be parsed. An interrupt of the text that
# ends the shell would unwind this as well: it does nothing meanwhile.
__sb_dump() {
    \trap : 40
    __sb_n=0
    for __sb_p; do
        __sb_n=$((__sb_n + 1))
        \eval "__sb_$__sb_n=\$__sb_p"
    done
    {
        \set
        \export -p
        \readonly -p
        __sb_positional '\\set --' ' "$__sb_%d"' "$@"
        __sb_positional '\\unset __sb_n __sb_p __sb_status __sb_signal' ' __sb_%d' "$@"
        \command printf '%s\n' '__sb_trap() { case "$3 $2" in EXIT\ *|40\ *|RTMIN+6\ *|"$3 __sb_"*) ;;' \
            '*) \trap "$@" ;; esac; }' '\alias trap=__sb_trap'
        \trap
        \command printf '\\unalias trap\n\\umask '
        \umask
        \command printf '%s\n' 'OLDPWD=${OLDPWD-} \command eval '\''\command cd -- "$PWD" || \command cd -P .'\'
        \set +o
        \command printf '%s\n' '__sb_limit() { IFS= \command read -r __sb_s; IFS= \command read -r __sb_h' \
            '\command ulimit -S "-$1" "$__sb_s"; \command ulimit -H "-$1" "$__sb_h"' \
            '\command ulimit -S "-$1" "$__sb_s"; }'
        for __sb_p in c d e f i l m n p q r s t u v w x; do
            \command printf '! __sb_limit %s <<.\n' "$__sb_p"
            \command ulimit -S "-$__sb_p"
            \command ulimit -H "-$__sb_p"
            \command printf '.\n'
        done
        \command printf '%s\n' 'while IFS= \command read -r __sb_p; do \command eval "\alias $__sb_p"; done <<\.'
        \alias
        \command printf '%s\n' '.' '\unset __sb_p __sb_s __sb_h' '\unset -f __sb_trap __sb_limit' '\:' \
            '# end'
    } >|@DIR@/state 2>/dev/null
    __sb_n=0
    for __sb_p; do
        __sb_n=$((__sb_n + 1))
        \unset "__sb_$__sb_n"
    done
    \unset __sb_n __sb_p
}

# __sb_positional HEAD EACH "$@": HEAD, then EACH with the number of each parameter.
__sb_positional() {
    \command printf "$1"
    __sb_n=0
    \shift
    __sb_p=$1
    \shift
    while \command [ "$__sb_n" -lt $# ]; do
        __sb_n=$((__sb_n + 1))
        \command printf "$__sb_p" "$__sb_n"
    done
    \command printf '\n'
}

__sb_exit() {
    __sb_status=$1
    \shift
    __sb_dump "$@" || \:
    __sb_arm 0
    \set +e
    \return "$__sb_status"
}
\trap '__sb_exit "$?" "$@"' EXIT
__sb_is_other() { \return 1; }
__sb_is_child
\eval "__sb_is_other() {
    \\unset __sb_p __sb_n
    case \$1 in '' | '$__sb_p') \\return 1 ;; esac
}"
