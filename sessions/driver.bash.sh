# shellcheck shell=bash
# shellcheck disable=SC2172 # a real-time signal has no portable name
# shellcheck disable=SC2016,SC1001,SC2064,SC2139 # what is expanded when, is meant so
# The driver of a bash session. Sourced once at the top level of the session's shell, after its
# state was restored; init writes the orders that call these functions. @DIR@ stands for the
# session's folder. Every status goes to the FIFO @DIR@/status as "SEQUENCE STATUS FLAGS".
#
# The user's text runs in the same shell and may redefine anything. What it breaks is its own
# session: init notices a missing status and replaces the shell.

BASH_ARGV0=bash

# __sb_arm STATUS '': before each text. Sets the driver's trap anew; $? and $_ are then what the
# text of before left, and nothing of ours.
__sb_arm() {
    \builtin trap '__sb_interrupt && { builtin trap - RETURN ERR; builtin return 130; } 2>/dev/null' 40
    \builtin return "$1"
}

# __sb_end SEQUENCE STATUS: after each text. Traps of these three kinds last for their text only
# (bash itself puts an outer DEBUG trap back when a sourced file ends, so a later text could not;
# RETURN and ERR it puts back when this function returns, so init's order clears them once more). So
# do functions named `command` and `builtin`: with one no order would run its text, and each would
# answer 0.
__sb_end() {
    \unset -f command builtin
    \builtin trap - DEBUG RETURN ERR
    \builtin printf '%d %d %s\n' "$1" "$2" "$-" >@DIR@/status
}

# __sb_settle SEQUENCE STATUS: __sb_end for a text that says trap or kill. An EXIT trap of the user
# goes on standing, behind ours. (One that another text sets, by a function, stands alone.)
__sb_settle() {
    \unset -f command builtin
    \builtin trap -p EXIT >|@DIR@/state
    \builtin declare -g __sb_on_exit=
    \builtin read -r -d '' __sb_on_exit <@DIR@/state || \builtin :
    case $__sb_on_exit in
    "trap -- '__sb_exit"*) ;;
    *)
        __sb_on_exit=${__sb_on_exit#trap -- }
        \builtin eval "__sb_on_exit=${__sb_on_exit% EXIT}"
        \builtin trap "__sb_exit \"\$?\" \"\$@\""$'\n'"$__sb_on_exit" EXIT
        ;;
    esac
    \builtin unset -v __sb_on_exit
    __sb_end "$@"
}

# A killed or timed-out text: bash runs this trap before its next statement. From then on the DEBUG
# trap answers 2, at which bash (with extdebug) returns from every function and sourced file, until
# only the driver is left. The `return` in the trap breaks calls that bash would restart (read).
# init sends the signal again until the shell is back: where no text runs, or its shell ends and
# writes its state, it does nothing, and the options that __sb_unwind puts back are those that the
# first one saw.
__sb_interrupt() {
    [[ ${FUNCNAME[-2]} == source && ${BASH_SOURCE[-2]} != @DIR@/back ]] || \return 1
    [[ ${FUNCNAME[1]} != __sb_exit && ${FUNCNAME[2]} != __sb_exit ]] || \return 1
    {
        \unset -f builtin enable
        \builtin enable trap return set shopt unset printf
        \builtin trap - RETURN ERR # those of a traced function; the others go behind it
        [[ -v __sb_flags ]] || __sb_flags=$-
        [[ -v __sb_debugs ]] || { \builtin shopt -q extdebug && __sb_debugs=1; }
        \builtin set +x
    } 2>/dev/null
    builtin trap __sb_unwind DEBUG
    builtin set -o functrace
    builtin shopt -s extdebug
}
__sb_unwind() {
    [[ ${#FUNCNAME[@]} -le 2 ]] || builtin return 2
    builtin trap - DEBUG
    builtin shopt -u extdebug # takes errtrace and functrace with it
    [[ ! -v __sb_debugs ]] || builtin shopt -s extdebug
    [[ $__sb_flags != *E* ]] || builtin set -E
    [[ $__sb_flags != *T* ]] || builtin set -T
    [[ $__sb_flags != *x* ]] || builtin set -x
    builtin unset -v __sb_flags __sb_debugs
}

# Write the state of the shell to @DIR@/state, as a script that restores it when sourced at top
# level of any bash. Options that change how the rest is parsed come first, those that could end the
# shell last; limits after those, since posix mode counts in other units. Traps of the driver, and
# those that last for a text only, are left out by a function named trap, until the user's own
# functions come.
__sb_dump() {
    \builtin local __sb_i
    {
        \builtin shopt -p
        \builtin printf '%s\n' 'trap() { case ${!#} in EXIT|DEBUG|RETURN|ERR|SIGRTMIN+6) ;;' \
            '*) builtin trap "$@" ;; esac; }'
        \builtin trap -p
        \builtin printf 'builtin unset -f trap\n'
        \builtin declare -f
        \builtin declare -F
        \builtin printf '\\unset -f builtin command\n'
        \builtin declare -p
        \builtin alias -p
        \builtin umask -p
        \builtin printf 'builtin set --'
        \builtin [ $# -eq 0 ] || \builtin printf ' %q' "$@"
        \builtin printf '\nOLDPWD=${OLDPWD-} command eval '\''command cd -- "$PWD" || command cd -P .'\''\n'
        for ((__sb_i = ${#DIRSTACK[@]} - 1; __sb_i > 0; __sb_i--)); do
            \builtin printf 'builtin pushd -n -- %q\n' "${DIRSTACK[__sb_i]}"
        done
        \builtin set +o
        \builtin printf '%s\n' '__sb_limit() { builtin local s h; IFS= builtin read -r s' \
            'IFS= builtin read -r h' \
            'builtin ulimit -S "-$1" "$s"; builtin ulimit -H "-$1" "$h"' \
            'builtin ulimit -S "-$1" "$s"; }'
        for __sb_i in c d e f i l m n q r s t u v x R; do
            \builtin printf '! __sb_limit %s <<.\n' "$__sb_i"
            \builtin ulimit -S "-$__sb_i"
            \builtin ulimit -H "-$__sb_i"
            \builtin printf '.\n'
        done
        \builtin printf 'builtin unset -f __sb_arm __sb_end __sb_settle __sb_interrupt __sb_unwind '
        \builtin printf '__sb_dump __sb_exit __sb_limit\nbuiltin unset -v __sb_flags __sb_debugs __sb_i\n'
        \builtin printf 'builtin :\n# end\n'
    } >|@DIR@/state 2>/dev/null
}

# The EXIT trap: the shell ends by the user's will; what it leaves is restored in a new one.
__sb_exit() {
    __sb_dump "${@:2}" || \builtin :
    \builtin set +e
    \builtin return "$1"
}
\builtin trap '__sb_exit "$?" "$@"' EXIT
