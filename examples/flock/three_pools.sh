#!/bin/sh
# Three pools on this machine, each with an authority of its own: `tree` has the jobs, `oak` and `elm` have machines.
# Runs leaves.sub at `tree` and shows where its jobs ran. Everything is in a directory that is removed at the end.
set -eu
place=$(mktemp -d)
here=$(cd "$(dirname "$0")" && pwd)

end() {
    for pool in tree oak elm; do
        poolnode stop --address "$place/$pool/node.sock" >/dev/null 2>&1 || true
    done
    rm -rf "$place"
}
trap end EXIT
trap 'exit 130' INT TERM

# begin POOL ROLES: start a pool of one node, and wait until it can be asked.
begin() {
    poolnode --roles "$2" --state "$place/$1" --set NODE_NAME="$1" --set FILESYSTEM_DOMAIN="$1" --set POLICY=dedicated \
        --set SLOTS=2 --set LISTEN=127.0.0.1:0 >"$place/$1.log" 2>&1 &
    until poolnode q --address "$place/$1/node.sock" >/dev/null 2>&1; do
        kill -0 $! || { cat "$place/$1.log" >&2; exit 1; }
        sleep 0.1
    done
}

begin tree collector,negotiator,schedd,world
for lender in oak elm; do
    begin "$lender" collector,negotiator,schedd,startd,world
    poolnode flock invite tree --address "$place/$lender/node.sock" >"$place/token"
    poolnode flock accept "$lender" "$place/token" --address "$place/tree/node.sock"
done
until [ "$(poolnode status --address "$place/tree/node.sock" --json | grep -c '"FlockPool"')" -ge 2 ]; do
    sleep 0.1
done
poolnode flock --address "$place/tree/node.sock"

cd "$here"
poolnode submit leaves.sub --address "$place/tree/node.sock"
poolnode wait 1 --address "$place/tree/node.sock" >/dev/null
poolnode history --address "$place/tree/node.sock" --json | grep -o '"LastRemoteHost": *"[^"]*"' | grep -o '@[a-z]*@tree' |
    sort | uniq -c
cat leaf.0.out
