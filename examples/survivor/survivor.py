#!/usr/bin/env python3
"""A pool of three desks on this machine whose owners keep coming back, and a long job that goes from one to the other.

    survivor.py [BLOCKS [PACE]]        how long the job is, and seconds between what owners do: 900 and 4 when not said

Starts the nodes, queues survivor.sub, lets the owners come and go until the job has ended, and draws what became of it:
walks.svg, from the job's own log and from owners.txt, which says when whose owner was there. Ends all that it started.
"""

import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import timeline

POOLNODE = [sys.executable, "-m", "pool"]
DESKS = ("attic", "kitchen", "study")
#: One machine has one keyboard: a line of a desk's configuration says whether its owner is there, and is read again.
POLICY = """
OWNER_IS_THERE = {there}
START     : !$(OWNER_IS_THERE)
SUSPEND   : $(OWNER_IS_THERE)
CONTINUE  : !$(OWNER_IS_THERE)
PREEMPT   : Activity == "Suspended" && $(ActivityTimer) > {patience:.0f}
"""
WAIT = 60.0


class Desk:
    """A node that lends a machine, and the owner of it."""

    def __init__(self, name, place, token, pace):
        self.name, self.there, self.pace = name, False, pace
        self.config = place / f"{name}.conf"
        self.settle(False)
        settings = {"EVALUATE_INTERVAL": 0.25, "CHECKPOINT_FIRST": pace, "CHECKPOINT_WORTH": 0}
        self.node = start(place, name, "startd", ["--join", token, "--config", str(self.config)], settings)

    def settle(self, there):
        """The owner comes or goes."""
        self.there = there
        self.config.write_text(POLICY.format(there=str(there).lower(), patience=self.pace))

    def turn(self):
        self.settle(not self.there)
        self.node.send_signal(1)  # SIGHUP: read the configuration again


def start(place, name, roles, more, settings):
    settings = {"NODE_NAME": name, "LISTEN": "127.0.0.1:0", "MAIL": "none", "RUN_AS": "node", **settings}
    command = [*POOLNODE, "--roles", roles, "--state", str(place / name), *more]
    for setting, value in settings.items():
        command += ["--set", f"{setting}={value}"]
    with open(place / f"{name}.log", "w") as log:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def ask(*command):
    """The output of a command that the user runs; "" when it fails."""
    done = subprocess.run([*POOLNODE, *command], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def until(what, question):
    """The first answer that is one."""
    end = time.monotonic() + WAIT
    while not (answer := question()):
        if time.monotonic() > end:
            raise SystemExit(f"survivor.py: waited {WAIT:.0f} seconds for {what}")
        time.sleep(0.1)
    return answer


def ended(log):
    return log.exists() and any(line.startswith("005 (") for line in log.read_text().splitlines())


def owners_until(over, desks, pace, chance, diary):
    """Owners come and go as chance has it, for a moment or for longer. One desk is always free."""
    turns = {desk: time.monotonic() + chance.uniform(1, 3) * pace for desk in desks}
    while not over():
        desk = min(desks, key=turns.__getitem__)
        if time.monotonic() < turns[desk]:
            time.sleep(0.05)
            continue
        if desk.there or sum(other.there for other in desks) < len(desks) - 1:
            desk.turn()
            diary.write(f"{time.time():.2f} {desk.name} {'comes' if desk.there else 'goes'}\n")
            diary.flush()
            print(f"{desk.name}'s owner {'comes' if desk.there else 'goes'}", flush=True)
        span = chance.choice(((0.4, 0.8), (1.5, 4))) if desk.there else (1, 3)
        turns[desk] = time.monotonic() + chance.uniform(*span) * pace


def run(place, blocks, pace):
    log = Path("walks.log")
    for old in (log, Path("walks.txt")):
        old.unlink(missing_ok=True)
    nodes, desks = [start(place, "head", "collector,negotiator,schedd", [], {})], []
    os.environ["POOLNODE_ADDRESS"] = str(place / "head" / "node.sock")
    try:
        token = until("the pool", lambda: ask("token", "--uses", str(len(DESKS))))
        for name in DESKS:
            desks.append(Desk(name, place, token, pace))
            nodes.append(desks[-1].node)
        until("the desks", lambda: len(ask("status", "--json").splitlines()) >= len(DESKS))
        with open("owners.txt", "w") as diary:
            until("the queue", lambda: ask("submit", "-q", "survivor.sub", f"blocks={blocks}"))
            owners_until(lambda: ended(log), desks, pace, random.Random(4), diary)
    finally:
        for node in nodes:
            node.terminate()
        for node in nodes:
            node.wait()
    Path("walks.svg").write_text(timeline.picture(log.read_text(), Path("owners.txt").read_text()))
    print(Path("walks.txt").read_text().splitlines()[-1])


def main():
    try:
        blocks, pace = int((sys.argv[1:2] or ["900"])[0]), float((sys.argv[2:3] or ["4"])[0])
    except ValueError:
        sys.exit("usage: survivor.py [BLOCKS [PACE]]")
    with tempfile.TemporaryDirectory(prefix="pool") as place:
        run(Path(place), blocks, pace)


if __name__ == "__main__":
    main()
