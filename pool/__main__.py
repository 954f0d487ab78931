"""`python -m pool` is `poolnode`."""

from pool.cli.entry import main

main()
