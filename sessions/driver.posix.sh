# shellcheck shell=dash
# shellcheck disable=SC2172 # a real-time signal has no portable name
# The driver of a dash or busybox ash session; driver.bash.sh tells the idea. These shells cannot
# print functions, and unwind an interrupted text by a parameter error instead of a DEBUG trap. (A
# text that made the name readonly is unwound by the failing unset.)

# Both run inside the `command eval` that an interrupted text unwinds to. Outside of it the error
# would end the shell: there the signal does nothing.
__sb_arm() {
    # shellcheck disable=SC2154
    \trap 'exec 2>/dev/null; \unset __sb_unset_name; : "${__sb_unset_name?}"' 40
    \trap '__sb_exit "$?"' EXIT
    \return "$1"
}
__sb_disarm() {
    \trap : 40
    \return "$1"
}

__sb_end() {
    \set -- "$1" "$?"
    \trap : 40
    \unset -f command
    \command printf '%d %d %s\n' "$1" "$2" "$-" >@DIR@/status
}

__sb_dump() {
    \trap - EXIT 40
    {
        set
        export -p
        readonly -p
        trap
        \printf 'umask '
        umask
        # shellcheck disable=SC2016
        \printf 'OLDPWD=${OLDPWD-} command . %s\n' @DIR@/back
        \printf 'unset -f __sb_arm __sb_disarm __sb_end __sb_dump __sb_exit\n'
        set +o
        \printf '# end\n'
    } >|@DIR@/state 2>/dev/null
}

__sb_exit() {
    __sb_dump
    \exit "$1"
}
