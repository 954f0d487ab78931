#!/usr/bin/env python3
"""Part of a sum over several machines: every part adds its share, and rank0 adds what the others send it by TCP."""

import os
import socket
import sys
import time

PORT = 5000
number, count = int(os.environ["_CONDOR_PROCNO"]), int(os.environ["_CONDOR_NPROCS"])
terms = int(sys.argv[1])
share = sum(1 / k**2 for k in range(terms - number, 0, -count))

if number == 0:
    with socket.create_server(("", PORT)) as server:
        for _ in range(count - 1):
            connection, (address, _) = server.accept()
            with connection:
                share += float(connection.makefile().read())
    print(f"{count} parts, {terms} terms: {share:.9f}")
else:
    while True:
        try:
            connection = socket.create_connection(("rank0", PORT))
            break
        except OSError:  # it is not there yet
            time.sleep(0.05)
    with connection:
        connection.sendall(repr(share).encode())
