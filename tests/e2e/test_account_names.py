"""One name for an account in all listings, and both spellings understood (docs/priorities.md)."""

from __future__ import annotations

import re

from tests.e2e.support import ALL, PATIENCE, Nodes, asked, client, own_name, poolnode, program

DOMAIN = "lab.example"
#: Listings that write whose something is; `checkpoints` is looked at by test_keeping.py.
LISTINGS = (
    ("q",),
    ("globalq",),
    ("history",),
    ("status",),
    ("why", "{running}"),
    ("why", "{waiting}"),
    ("why", "{machine}"),
    ("userprio",),
    ("summary",),
)
#: Commands that take a user; each finds something.
TAKE_A_USER = (("q",), ("history",), ("userprio",), ("prio", "-p", "1"))


async def test_all_listings_write_an_account_in_one_way(nodes: Nodes) -> None:
    home = nodes.directory("home")
    node = nodes.start("lab", ALL, UID_DOMAIN=DOMAIN, SLOTS="2").ready()
    me = own_name()

    def said(*words: str) -> str:
        done = poolnode(*words, POOLNODE_ADDRESS=node.address, COLUMNS="200")
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout

    async with client(node) as pool:
        (done,) = await (await pool.submit({"executable": "/bin/true"}, iwd=home)).wait(PATIENCE)
        assert done.ok, done
        script = program(home, "while :; do sleep 0.1; done")
        cluster = await pool.submit({"executable": script, "queue": 12}, iwd=home)

        async def is_busy() -> bool:
            (ad,) = await pool.jobs(ids=[(cluster.cluster, 0)])
            line = "in line" in str(await pool.why((cluster.cluster, 11)))
            return line and ad.value("JobStatus") == 2

        await asked(is_busy, "one job to run and one to wait for its turn")
        (ad,) = await pool.jobs(ids=[(cluster.cluster, 0)])
        there = {
            "running": f"{cluster.cluster}.0",
            "waiting": f"{cluster.cluster}.11",
            "machine": str(ad.value("RemoteHost")),
        }
        for words in LISTINGS:
            text = said(*(word.format(**there) for word in words))
            if words != ("why", "{running}"):
                assert re.search(rf"(^|[\s/]){re.escape(me)}(\s|,|$)", text, re.MULTILINE), (words, text)
            assert DOMAIN not in text, (words, text)
        for spelled in (me, f"{me}@{DOMAIN}"):
            for command, *more in TAKE_A_USER:
                found = said(command, spelled, *more)
                assert me in found or "12 jobs" in found, (command, spelled, found)
            assert me in said("q", spelled, "nobody-here")
        assert said("rm", f"{me}@{DOMAIN}", "nobody-here") == "12 jobs removed\n"
