#!/bin/sh
# The same three, one after the other with files in between: what one gives is moved to where the next one looks.
set -e
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
"$here/phnx" >&2
mv fort.10 fort.11
"$here/geom" >&2
ls -l fort.11 fort.10 | awk '{print $5, "bytes in", $9}' >&2
mv fort.10 fort.11
"$here/snomux"
