"""Checkpoints of a job on two machines whose parts talk over TCP: how long each part stands still for a set.

The peer is the same program as one part, which talks to itself by as many connections, saved in turns with the other.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import time
from pathlib import Path

from pool.checkpoint.build import compiler
from pool.client import Pool
from pool.client.handles import Cluster
from tests.benchmarks.rows import Effort, Goal, Row, benchmark
from tests.e2e import support
from tests.e2e.support import HEAD, client, slots, token, until

#: Fills memory with numbers that nothing can compress, connects to the other part, and sends by all connections in
#: turn what that sends back. A thread wakes each millisecond and says when it came too late; whoever waits for an
#: answer says when that came late: both with the time, and in seconds.
PROGRAM = """
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
enum { MOST = 64, BYTES = 4096 };
static int count, served[MOST];
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}
static void said(const char *what, double since)
{
    double at = now();
    if (at - since > 0.002)
        fprintf(stderr, "%s %.6f %.6f\\n", what, at, at - since);
}
static void *wakes(void *unused)
{
    for (;;) {
        double since = now();
        usleep(1000);
        said("stood", since);
    }
    return unused;
}
static void whole(int fd, char *block, int writes)
{
    for (size_t at = 0; at < BYTES;) {
        ssize_t got = writes ? write(fd, block + at, BYTES - at) : read(fd, block + at, BYTES - at);
        if (got <= 0) {
            fprintf(stderr, "cut off\\n");
            exit(1);
        }
        at += (size_t)got;
    }
}
static void *answers(void *given)
{
    char block[BYTES];
    struct pollfd polls[MOST];
    int server = *(int *)given;
    for (int i = 0; i < count; i++)
        polls[i] = (struct pollfd){.fd = served[i] = accept(server, NULL, NULL), .events = POLLIN};
    for (;;) {
        poll(polls, (nfds_t)count, -1);
        for (int i = 0; i < count; i++)
            if (polls[i].revents) {
                whole(served[i], block, 0);
                whole(served[i], block, 1);
            }
    }
    return given;
}
static int connected(const char *name)
{
    struct addrinfo *found, hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
    for (;; usleep(50000)) {
        if (getaddrinfo(name, "5000", &hints, &found))
            continue;
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (!connect(fd, found->ai_addr, found->ai_addrlen))
            return fd;
        close(fd);
        freeaddrinfo(found);
    }
}
int main(int argc, char **argv)
{
    size_t size = (size_t)atol(argv[1]) << 20;
    unsigned long value = 1;
    char *memory = malloc(size), block[BYTES];
    int links[MOST], server = socket(AF_INET, SOCK_STREAM, 0);
    struct addrinfo *own, hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    pthread_t thread;
    (void)argc;
    count = atoi(argv[2]);
    for (size_t at = 0; at < size; at += 8)
        *(unsigned long *)(memory + at) = value = value * 6364136223846793005ul + 1;
    memset(block, 'x', sizeof block);
    if (getaddrinfo(NULL, "5000", &hints, &own) || bind(server, own->ai_addr, own->ai_addrlen) || listen(server, MOST))
        return 1;
    pthread_create(&thread, NULL, answers, &server);
    for (int i = 0; i < count; i++)
        links[i] = connected(argv[3]);
    pthread_create(&thread, NULL, wakes, NULL);
    fprintf(stderr, "ready\\n");
    for (;;) {
        double since = now();
        for (int i = 0; i < count; i++)
            whole(links[i], block, 1);
        for (int i = 0; i < count; i++)
            whole(links[i], block, 0);
        said("waited", since);
        usleep(1000);
    }
}
"""
#: Sets of each job; connections between the two parts, or of the single job to itself.
TURNS, CONNECTIONS = 12, 20


def _compile(home: Path) -> None:
    (home / "part.c").write_text(PROGRAM)
    subprocess.run([*compiler().split(), "-O2", "-pthread", "-o", home / "part", home / "part.c"], check=True)


def _longest(told: Path, what: str, since: float) -> float:
    """The longest of such waits that ended after that, seconds."""
    lines = [line.split() for line in told.read_text().splitlines() if line.startswith(what)]
    return max((float(length) for _, at, length in lines if float(at) > since), default=0.0)


async def _submit(pool: Pool, home: Path, megabytes: int, parts: int) -> tuple[Cluster, list[Path]]:
    """The job, and where its parts say how long they stood."""
    script = home / f"start{parts}.sh"
    other = "rank0" if parts == 1 else "rank$((1 - $1))"
    script.write_text(f"#!/bin/sh\nexec {home}/part {megabytes} {CONNECTIONS // parts} {other}\n")
    script.chmod(0o755)
    text = f"""
    universe = parallel
    executable = {script}
    transfer_executable = false
    arguments = $(Node)
    machine_count = {parts}
    job_network = private
    requirements = TARGET.SlotID == 1
    error = err{parts}.$(Node)
    queue
    """
    cluster = await pool.submit(text, iwd=str(home))
    told = [home / f"err{parts}.{part}" for part in range(parts)]
    await until(lambda: all(one.exists() and "ready" in one.read_text() for one in told), "all parts to talk")
    return cluster, told


@benchmark("sets_network")
async def sets_network(effort: Effort) -> list[Row]:
    """Two parts with TCP connections between them, on a machine each: saved beside their run, again and again."""
    megabytes = effort.of(100, least=10)
    stood: dict[int, list[float]] = {1: [], 2: []}
    waited: dict[int, list[float]] = {1: [], 2: []}
    with support.nodes() as nodes:
        head = nodes.start("head", HEAD).ready()
        for name in ("one", "two", "three"):
            nodes.start(name, "startd", join=await token(head, "startd")).ready()
        home = nodes.directory("home")
        _compile(home)
        async with client(head) as pool:
            await slots(pool, 3)
            jobs = {parts: await _submit(pool, home, megabytes, parts) for parts in (2, 1)}
            for _ in range(effort.of(TURNS, least=2)):
                for parts, (cluster, told) in jobs.items():
                    since = time.time()
                    done = await cluster.checkpoint()
                    assert done.done == 1, done
                    await asyncio.sleep(0.5)  # TCP sends again what was held
                    stood[parts] += [_longest(one, "stood", since) for one in told]
                    waited[parts].append(max(_longest(one, "waited", since) for one in told))
            for cluster, _ in jobs.values():
                await cluster.remove()
                await cluster.wait(support.PATIENCE)
    single, both = statistics.median(stood[1]), statistics.median(stood[2])
    what = f"a set of two parts of {megabytes} MB with {CONNECTIONS} connections between"
    note = f"median of {len(stood[2])}, {1e3 * min(stood[2]):.1f} to {1e3 * max(stood[2]):.1f} ms"
    peer = "one part with as many connections to itself"
    return [
        Row(f"{what}: a part stands still", 1e3 * both, "ms", Goal("at most", 10), peer, 1e3 * single, note=note),
        Row(
            f"{what}: its connections stand still",
            1e3 * statistics.median(waited[2]),
            "ms",
            peer=peer,
            peer_value=1e3 * statistics.median(waited[1]),
        ),
    ]
