#!/bin/sh
# tests/npm.sh NAME: puts what tests/NAME/package-lock.json pins into build/NAME, and a node that is
# new enough into build/node if the machine has none. Does nothing, and needs no network, if it is
# there. Prints the path of node.
set -eu
cd "$(dirname "$0")/$1"
build=../../build
to=$build/$1
mkdir -p "$to"

# Two test workers, or a test and `make deps`, may come at once.
exec 9>"$build/npm-lock"
flock 9

# The client's packages say 22 and work with 20; 18, which Debian 12 has, lacks a global it uses.
node=$(command -v node || true)
major=$("${node:-false}" -p 'process.versions.node.split(".")[0]' 2>/dev/null || echo 0)
if [ "$major" -lt 20 ]; then
    case $(uname -m) in
    aarch64) arch=arm64 ;;
    *) arch=x64 ;;
    esac
    [ -x "$build/node/node_modules/node-linux-$arch/bin/node" ] ||
        npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$build/node" \
            "node-linux-$arch@22.23.5" >&2
    node=$(cd "$build/node/node_modules/node-linux-$arch/bin" && pwd)/node
fi

if ! cmp -s package-lock.json "$to/installed"; then
    rm -f "$to/installed"
    cp package.json package-lock.json "$to"
    echo "installing the npm packages of tests/$1" >&2
    (cd "$to" && npm ci --silent --no-audit --no-fund --ignore-scripts >&2)
    cp package-lock.json "$to/installed"
fi
echo "$node"
