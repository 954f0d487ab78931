/*
 * How many primes lie in [from, to)? Prints one line. Nothing about it is special: no library of the pool, no relinking.
 */
#include <stdio.h>
#include <stdlib.h>

static int is_prime(unsigned long n)
{
    if (n < 4)
        return n > 1;
    if (n % 2 == 0)
        return 0;
    for (unsigned long d = 3; d <= n / d; d += 2)
        if (n % d == 0)
            return 0;
    return 1;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: primes FROM TO\n");
        return 2;
    }
    unsigned long from = strtoul(argv[1], NULL, 10), to = strtoul(argv[2], NULL, 10), count = 0;
    for (unsigned long n = from; n < to; n++)
        count += is_prime(n);
    printf("%lu primes in [%lu, %lu)\n", count, from, to);
    return 0;
}
