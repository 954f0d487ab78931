"""Submit commands of pipe jobs: the shell syntax, the connections, the processes, the spread (VS 3.2, 4.2)."""
