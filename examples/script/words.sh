#!/bin/sh
# Count the words of the text on standard input and say which of them come most often.
# Usage: words.sh HOW_MANY < TEXT
set -eu
how_many=${1:?usage: words.sh HOW_MANY < TEXT}
tr -cs '[:alpha:]' '\n' | tr '[:upper:]' '[:lower:]' | sed '/^$/d' >words
echo "$(wc -l <words) words, the most frequent:"
LC_ALL=C sort words | uniq -c | LC_ALL=C sort -k1,1nr -k2 >counts
head -n "$how_many" counts
