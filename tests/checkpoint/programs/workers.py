"""Processes of its own that are given work and give answers: forked, joined by pipes, locks in shared memory."""

import hashlib
import multiprocessing


def work(n: int) -> tuple[int, str]:
    text = str(n).encode()
    for _ in range(6000):
        text = hashlib.sha256(text).digest()
    with counter.get_lock():
        counter.value += 1
    return n, text.hex()


if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    counter = multiprocessing.Value("i", 0)
    with multiprocessing.Pool(3) as pool:
        for n, text in pool.imap(work, range(300), chunksize=2):
            print(n, text, flush=True)
        print(counter.value)
    process = multiprocessing.Process(target=print, args=("another",), kwargs={"flush": True})
    process.start()
    process.join()
    print(process.exitcode)
