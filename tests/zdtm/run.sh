#!/bin/sh
# run.sh NAME MOVES [WORD...]: starts a test program, waits until it has been moved when it is to be, ends it, and shows what
# it says of itself.
name=$1 moves=$2
shift 2
# The scratch directory is another one after a move; in shared mode, where there is none, a file says so.
place() { if [ -e "$name.moved" ]; then echo moved; else awk '$5 == "/job" { print $4 }' /proc/self/mountinfo; fi; }
show() { tail -n 3 "$1" 2>/dev/null; }
first=$(place)
if ! timeout -s KILL 10 "./$name" "--pidfile=$name.pid" "--outfile=$name.out" "$@" >"$name.std" 2>&1; then
    echo "it did not start"
    show "$name.std"
    show "$name.out.inprogress"
    exit 0
fi
: >"$name.ready"
while [ "$moves" -gt 0 ] && [ "$(place)" = "$first" ]; do sleep 0.1; done
[ "$(place)" = "$first" ] || echo "moved"
kill -TERM "$(cat "$name.pid")"
tries=0
while [ ! -e "$name.out" ] && [ $tries -lt 100 ]; do
    sleep 0.1
    tries=$((tries + 1))
done
[ -e "$name.out" ] && show "$name.out" || { echo "it did not end"; show "$name.out.inprogress"; }
exit 0
