"""Dask: a scheduler and two workers, which are processes of their own, and a client that gives them work in rounds."""

import hashlib
import sys

from distributed import Client, LocalCluster


def square(number: int) -> int:
    return number * number


def joined(parts: "list[bytes]") -> bytes:
    return b"".join(parts)[::-1]


def block(number: int) -> bytes:
    return bytes([number % 251]) * (5000 + 137 * number)


if __name__ == "__main__":
    cluster = LocalCluster(n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None, silence_logs=50)
    with cluster, Client(cluster) as client:
        for turn in range(int(sys.argv[1])):
            squares = client.map(square, range(turn * 20, turn * 20 + 20))
            blocks = client.map(block, range(turn, turn + 6))
            whole = client.submit(joined, blocks).result()  # what one worker has goes to the other
            print(turn, client.submit(sum, squares).result(), hashlib.sha256(whole).hexdigest(), flush=True)
