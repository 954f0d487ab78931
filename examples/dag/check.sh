#!/bin/sh
# Runs on the submit machine: the node is a success if its job was, and its result is there.
test "$2" = 0 && test -s "$1"
