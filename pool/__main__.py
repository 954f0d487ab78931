"""`python -m pool` is `poolnode`."""

from pool.cli.main import main

main()
