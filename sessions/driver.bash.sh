# shellcheck shell=bash
# shellcheck disable=SC2172 # a real-time signal has no portable name
# The driver of a bash session. Sourced once at the top level of the session's shell, after its
# state was restored; init writes the orders that call these functions. @DIR@ stands for the
# session's folder. Every status goes to the FIFO @DIR@/status as "SEQUENCE STATUS FLAGS".
#
# The user's text runs in the same shell and may redefine anything. What it breaks is its own
# session: init notices a missing status and replaces the shell.

BASH_ARGV0=bash

# __sb_arm STATUS '': before each text. Sets the driver's traps anew; $? and $_ are then what the
# text of before left, and nothing of ours.
__sb_arm() {
    builtin trap '__sb_interrupt && { builtin trap - RETURN ERR; builtin return 130; } 2>/dev/null' 40
    builtin trap '__sb_exit "$?" "$@"' EXIT
    builtin return "$1"
}

# __sb_end SEQUENCE "$@": after each text. Traps of these three kinds last for their text only (bash
# itself puts an outer DEBUG trap back when a sourced file ends, so a later text could not; RETURN
# and ERR it puts back when this function returns, so init's order clears them once more). So does
# a function named `command`: with it no order would run its text, and each would answer 0.
# Status 2 may be a syntax error, after which bash 5.2 can break its own heap (session.c): the
# state is written while that is still possible.
__sb_end() {
    builtin set -- "$1" "$?" "${@:2}"
    builtin trap - DEBUG RETURN ERR
    builtin unset -f command
    case $2 in 2) __sb_dump "${@:3}" ;; esac
    builtin printf '%d %d %s\n' "$1" "$2" "$-" >@DIR@/status
}

# A killed or timed-out text: bash runs this trap before its next statement. From then on the DEBUG
# trap answers 2, at which bash (with extdebug) returns from every function and sourced file, until
# only the driver is left. The `return` in the trap breaks calls that bash would restart (read).
# init sends the signal again until the shell is back: where no text runs it does nothing, and the
# options that __sb_unwind puts back are those that the first one saw.
__sb_interrupt() {
    [[ ${FUNCNAME[-2]} == source && ${BASH_SOURCE[-2]} != @DIR@/back ]] || \return 1
    {
        \unset -f builtin enable
        \builtin enable trap return set shopt unset printf
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
# level. Options that change how the rest is parsed come first, those that could end the shell last.
__sb_dump() {
    builtin trap - EXIT 40
    {
        builtin shopt -p
        builtin declare -f
        builtin declare -F
        builtin declare -p
        builtin alias -p
        builtin trap -p
        builtin umask -p
        builtin printf 'builtin set --'
        [ $# -eq 0 ] || builtin printf ' %q' "$@"
        # shellcheck disable=SC2016
        builtin printf '\nOLDPWD=${OLDPWD-} command . %q\n' @DIR@/back
        builtin printf 'builtin unset -f __sb_arm __sb_end __sb_interrupt __sb_unwind __sb_dump __sb_exit\n'
        builtin set +o
        builtin printf '# end\n'
    } >|@DIR@/state 2>/dev/null
}

# The EXIT trap: the shell ends by the user's will; what it leaves is restored in a new one.
__sb_exit() {
    __sb_dump "${@:2}"
    builtin exit "$1"
}
