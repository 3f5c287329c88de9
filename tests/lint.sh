#!/bin/sh
# Everything that reads the sources and complains: clang-format (check only), clang-tidy, cppcheck,
# scripts (shellcheck) and includes. `tests/lint.sh PART…` runs some parts only; exits 1 on a complaint.
set -u
cd "$(dirname "$0")/.." || exit 1

modules='base config control logger sessions services import init ctl gateway'

# The C files of some folders, one a line.
c_files() {
    for d in "$@"; do
        [ -d "$d" ] && find "$d" -name '*.[ch]' -type f
    done | sort
}

# The shell scripts among the files of the project: by name or by first line.
scripts() {
    git ls-files -co --exclude-standard | while read -r f; do
        case $f in
        *.sh) echo "$f" ;;
        *) [ -f "$f" ] && head -n 1 "$f" 2>/dev/null | grep -qaE '^#!.*/(env )?(sh|bash|dash)$' && echo "$f" ;;
        esac
    done
}

do_format() {
    # shellcheck disable=SC2046,SC2086 # lists of files
    clang-format --dry-run -Werror $(c_files $modules tests)
}

do_tidy() {
    # shellcheck disable=SC2016,SC2086 # expanded by the inner shell; a list of folders
    c_files $modules | grep '\.c$' | xargs -r -P 2 -n 6 sh -c '
        clang-tidy --quiet "$@" -- -std=c17 -I. -Ibuild/gen -isystem /usr/share/include/llhttp -D_GNU_SOURCE \
            "-DSANDBOX_VERSION=\"lint\"" 2>/dev/null' sh
}

do_cppcheck() {
    # shellcheck disable=SC2046,SC2086
    cppcheck --quiet --error-exitcode=1 --std=c11 --enable=warning,performance,portability \
        --inline-suppr --suppress=missingIncludeSystem --suppress=normalCheckLevelMaxBranches \
        -I. -Ibuild/gen -D_GNU_SOURCE '-DSANDBOX_VERSION="lint"' $(c_files $modules | grep '\.c$')
}

do_shell() {
    # shellcheck disable=SC2046
    shellcheck $(scripts)
}

# The second compiler: gcc builds everything, clang reads it with the same warnings as errors.
do_clang() {
    # shellcheck disable=SC2016,SC2086 # expanded by the inner shell; a list of folders
    c_files $modules tests | grep '\.c$' | grep -v '^tests/fuzz/' | xargs -r -n 1 sh -c '
        clang -fsyntax-only -std=c17 -I. -Ibuild/gen -isystem /usr/share/include/llhttp -D_GNU_SOURCE "-DSANDBOX_VERSION=\"lint\"" \
            -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wformat=2 \
            -Wconversion -Wvla -Wundef -Wwrite-strings -Werror "$1"' sh
}

do_arrows() {
    /usr/bin/python3 -B tests/lint_arrows.py
}

[ $# -gt 0 ] || set -- format arrows shell clang cppcheck tidy
failed=0
for p in "$@"; do
    status=0
    case $p in
    format) do_format || status=1 ;;
    arrows) do_arrows || status=1 ;;
    shell) do_shell || status=1 ;;
    clang) do_clang || status=1 ;;
    cppcheck) do_cppcheck || status=1 ;;
    tidy) do_tidy || status=1 ;;
    *)
        echo "usage: $0 [format|arrows|shell|clang|cppcheck|tidy]…" >&2
        exit 2
        ;;
    esac
    if [ "$status" = 0 ]; then
        echo "$p: ok"
    else
        echo "$p: complaints" >&2
        failed=1
    fi
done
exit "$failed"
