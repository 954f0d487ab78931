#!/usr/bin/env python3
"""Cross-validate k-nearest-neighbour recognition of handwritten digits for one k.

    knn.py K DIGITS.csv.gz

Shuffles the digits with a fixed seed, cuts them into ten folds, and recognises each fold by the other nine:
a digit is what most of its k nearest neighbours (Euclidean distance over the 64 pixels) are; a tie goes to
the nearest among them. Needs nothing but Python, takes about two seconds on one core, and prints the same for
the same input anywhere.
"""

import csv
import gzip
import heapq
import math
import random
import sys
from collections import Counter
from itertools import repeat

FOLDS = 10
SEED = 1998


def read_digits(path):
    """The (pixels, digit) pairs of a file, in the file's order."""
    with gzip.open(path, "rt", newline="") as lines:
        return [(tuple(map(float, row[:-1])), int(row[-1])) for row in csv.reader(lines)]


def recognise(pixels, known_pixels, known_digits, k):
    """The digit that most of the k nearest neighbours are."""
    distances = map(math.dist, repeat(pixels), known_pixels)
    nearest = [digit for _, digit in heapq.nsmallest(k, zip(distances, known_digits, strict=True))]
    votes = Counter(nearest)
    most = max(votes.values())
    return next(digit for digit in nearest if votes[digit] == most)


def cross_validate(digits, k):
    """The share of each fold that was recognised rightly, knowing the other folds."""
    digits = list(digits)
    random.Random(SEED).shuffle(digits)
    shares = []
    for fold in range(FOLDS):
        unknown = digits[fold::FOLDS]
        known = [digit for place, digit in enumerate(digits) if place % FOLDS != fold]
        known_pixels, known_digits = zip(*known, strict=True)
        right = sum(recognise(pixels, known_pixels, known_digits, k) == digit for pixels, digit in unknown)
        shares.append(right / len(unknown))
    return shares


def main(arguments):
    if len(arguments) != 2 or not arguments[0].isdigit() or int(arguments[0]) < 1:
        sys.exit("usage: knn.py K DIGITS.csv.gz, with K at least 1")
    k, digits = int(arguments[0]), read_digits(arguments[1])
    shares = cross_validate(digits, k)
    mean = sum(shares) / FOLDS
    spread = math.sqrt(sum((share - mean) ** 2 for share in shares) / (FOLDS - 1))
    print(f"k={k} digits={len(digits)} folds={FOLDS} accuracy={mean:.5f} spread={spread:.5f}")


if __name__ == "__main__":
    main(sys.argv[1:])
