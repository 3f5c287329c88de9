#!/bin/sh
# Installs what a fresh Debian machine lacks to build sandbox-init, with --test also what its tests
# need. Does nothing, and needs no network, if all is there.
set -eu

packages='build-essential libev-dev libinih-dev libcap-dev node-llhttp libjansson-dev libarchive-dev'
with_tests=no
if [ "${1-}" = --test ]; then
    with_tests=yes
    packages="$packages python3 python3-pytest python3-pytest-xdist python3-jsonschema runc tini dumb-init s6 supervisor
        busybox-static dash bash util-linux procps clang clang-format clang-tidy cppcheck
        shellcheck valgrind libclang-rt-dev nginx-light redis-server s3fs nodejs curl chromium lowdown man-db"
    # Debian's nodejs leaves npm to a package of its own; others bring it along.
    command -v npm >/dev/null || packages="$packages npm"
elif [ $# -gt 0 ]; then
    echo "usage: $0 [--test]" >&2
    exit 2
fi

# is_there PACKAGE: installed, or (off Debian) nobody can say.
is_there() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    echo "$0: not a Debian machine; these packages are needed: $packages" >&2
    exit 0
fi

missing=
for p in $packages; do
    is_there "$p" || missing="$missing $p"
done

# What the conformance tests and those of the page get from npm (build/conformance, build/page).
npm_packages() {
    [ "$with_tests" = yes ] || return 0
    for of in conformance page; do
        "$(dirname "$0")/npm.sh" "$of" >/dev/null
    done
}
if [ -z "$missing" ]; then
    npm_packages
    exit 0
fi

as_root=
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "$0: not root and no sudo; please install:$missing" >&2
        exit 1
    fi
    as_root=sudo
fi
echo "installing:$missing"
# The tests run nginx and redis in boxes; the machine itself is to start neither (invoke-rc.d(8)).
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap '$as_root rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' | $as_root tee "$policy" >/dev/null
    $as_root chmod 755 "$policy"
fi
export DEBIAN_FRONTEND=noninteractive
$as_root apt-get -qq update
# shellcheck disable=SC2086 # a list of words
$as_root apt-get -qq install -y --no-install-recommends $missing
npm_packages
