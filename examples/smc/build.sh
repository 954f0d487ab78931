#!/bin/sh
# Compiles the three programs as they are; the names of their files are in them.
set -e
cd "$(dirname "$0")"
for name in phnx geom snomux; do
    gfortran -O2 -std=legacy -o "$name" "$name.f"
done
