#!/bin/sh
# Texts of 100, 200 and 300 words.
for n in 1 2 3; do seq $((n * 100)) > text$n; done
