#!/usr/bin/env python3
"""Adds a year's interest of five percent to every account of a directory, in place, and keeps a journal."""

import os
import sys

books = sys.argv[1]
for name in sorted(os.listdir(books)):
    if name == "journal":
        continue
    with open(os.path.join(books, name), "r+") as account:
        before = float(account.read())
        account.seek(0)
        account.write(f"{before * 1.05:.2f}\n")
        account.truncate()
    with open(os.path.join(books, "journal"), "a") as journal:
        journal.write(f"{name} {before * 1.05:.2f}\n")
with open(os.path.join(books, "journal")) as journal:
    print(journal.read(), end="")
