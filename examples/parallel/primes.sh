#!/bin/sh
# Count the primes in this node's share of the numbers up to $1.
share=$(($1 / _CONDOR_NPROCS))
first=$((_CONDOR_PROCNO * share + 1))
last=$((first + share - 1))
count=$(seq $first $last | factor | awk 'NF == 2' | wc -l)
echo "node $_CONDOR_PROCNO of $_CONDOR_NPROCS: $count primes from $first to $last"
