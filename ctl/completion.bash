# Completion of sandboxctl for bash: source this file, or install it as
# /usr/share/bash-completion/completions/sandboxctl. Verbs, options, sessions and ids come from
# sandboxctl itself, so this never lags behind.

_sandboxctl() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
    local -a socket=() verb=()
    local word i candidates=

    # What is typed so far: the socket and the verb's one or two words.
    for ((i = 1; i < COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        case $word in
        -S | --socket)
            socket=("${COMP_WORDS[i + 1]}")
            ((i++))
            ;;
        -*) ;;
        *)
            if ((${#verb[@]} == 0)) || [[ ${#verb[@]} == 1 && ${verb[0]} == @(session|service|terminal) ]]; then
                verb+=("$word")
            fi
            ;;
        esac
    done
    _sandboxctl_ask() {
        SANDBOX_SOCKET=${socket[0]:-${SANDBOX_SOCKET-}} "${COMP_WORDS[0]}" --complete "$@" 2>/dev/null
    }

    # Letters and names that mean another thing to another verb.
    case ${verb[*]}:$prev in
    logs:-f | 'service logs:-f' | events:-f) prev= ;; # --follow: no word of its own
    'session create:--from') prev=--file ;;
    esac

    COMPREPLY=()
    case $prev in
    -S | --socket | -f | --file | --shell | --record)
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        return
        ;;
    --cwd)
        mapfile -t COMPREPLY < <(compgen -d -- "$cur")
        return
        ;;
    -e | --env | -t | --timeout | --idle-timeout | --cpu-timeout | --soft-timeout | --wait-for | --grace | --id | --setup | --from | -n | --tail | --output-limit | --rows | --cols | --detach-keys) return ;;
    -u | --user) candidates=$(compgen -u) ;;
    -s | --session | --running) candidates=$(_sandboxctl_ask sessions) ;;
    --stray) candidates=$(_sandboxctl_ask strays) ;;
    -k | --kind) candidates='init gateway session command process terminal stray oom reload stop main service' ;;
    --output-limit-action) candidates='keep kill' ;;
    --signal) candidates='TERM KILL INT HUP QUIT USR1 USR2 STOP CONT' ;;
    *)
        if [[ $cur == -* ]]; then
            candidates=$(_sandboxctl_ask options "${verb[@]}")
        elif ((${#verb[@]} == 0)); then
            candidates=$(_sandboxctl_ask verbs | cut -d' ' -f1 | sort -u)
        elif [[ ${verb[*]} == @(session|service|terminal) ]]; then
            candidates=$(_sandboxctl_ask verbs | sed -n "s/^${verb[0]} //p")
        else
            case ${verb[*]} in
            help) candidates=$(_sandboxctl_ask verbs | cut -d' ' -f1 | sort -u) ;;
            'session show' | 'session delete' | 'session reset' | 'session env' | 'session fork' | 'session save')
                candidates=$(_sandboxctl_ask sessions)
                ;;
            'terminal attach' | 'terminal kill') candidates=$(_sandboxctl_ask terminals) ;;
            'service signal')
                candidates='TERM KILL INT HUP QUIT USR1 USR2 STOP CONT '$(_sandboxctl_ask services)
                ;;
            service\ *) candidates=$(_sandboxctl_ask services) ;;
            logs | wait | kill | send) candidates=$(_sandboxctl_ask ids) ;;
            esac
        fi
        ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$candidates" -- "$cur")
}
complete -F _sandboxctl sandboxctl
