#!/bin/sh
# The sum of the counts.
cat one.count two.count three.count | awk '{ sum += $1 } END { print sum, "words" }'
