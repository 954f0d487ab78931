"""The commands of an administrator: reload, stop, and tokens with which users come in over TLS from elsewhere."""

from __future__ import annotations

import json
import time
from pathlib import Path

from pool.client import Pool
from pool.client.network import UserNetwork
from tests.e2e.support import ALL, Nodes, client, one_line, own_name, poolnode, processes_with, program, until


def test_reload_shows_what_changed_and_what_waits_for_a_restart(nodes: Nodes) -> None:
    config = nodes.directory("home") / "pool.conf"
    config.write_text("START = TRUE\nDOOR_PASSWORD = sesame-1\n")
    whole = nodes.start("whole", ALL, config=config).ready()
    assert poolnode("reload", POOLNODE_ADDRESS=whole.address).stdout == "nothing has changed\n"
    text = "START = FALSE\nDOOR_PASSWORD = sesame-2\nADMIN = x$(DOOR_PASSWORD)@y\nPERIODIC_INTERVAL = 30\n"
    config.write_text(text)
    done = poolnode("reload", POOLNODE_ADDRESS=whole.address)
    assert done.returncode == 0, done.stderr
    found = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert found["START"].split()[1:4] == ["TRUE", "FALSE", "now"]
    assert "after a restart" in found["PERIODIC_INTERVAL"]
    assert f"{config}:4" in found["PERIODIC_INTERVAL"]
    assert "start the node again for PERIODIC_INTERVAL" in done.stderr
    assert "x(secret)@y" in found["ADMIN"]
    assert "sesame" not in done.stdout + poolnode("config", POOLNODE_ADDRESS=whole.address).stdout
    config.write_text("START = Memory >\n")
    assert "START" in one_line(poolnode("reload", POOLNODE_ADDRESS=whole.address))
    assert poolnode("config", "START", "--json", POOLNODE_ADDRESS=whole.address).stdout.count("FALSE") == 1


async def test_stop_ends_the_node_and_leaves_its_jobs_running(nodes: Nodes) -> None:
    home = nodes.directory("home")
    whole = nodes.start("whole", ALL).ready()
    script = program(home, "while ! test -e go; do sleep 0.02; done; echo through", "stays-7531.sh")
    async with client(whole) as pool:
        cluster = await pool.submit({"executable": script, "output": "out"}, iwd=str(home))
        await until(lambda: processes_with("stays-7531"), "the job to begin")
    done = poolnode("stop", POOLNODE_ADDRESS=whole.address)
    assert (done.returncode, done.stderr) == (0, "")
    assert "whole has ended" in done.stdout
    assert whole.ended() == 0
    assert processes_with("stays-7531")
    (home / "go").touch()
    whole = nodes.start("whole", ALL).ready()
    async with client(whole) as pool:
        (result,) = await pool.cluster(cluster.cluster, 1).wait(20)
    assert result.ok, result
    assert (home / "out").read_text() == "through\n"
    assert "no node runs there" in one_line(poolnode("stop", POOLNODE_ADDRESS=f"unix://{home}/none.sock"))


async def test_a_user_elsewhere_comes_in_by_token_over_tls(nodes: Nodes, tmp_path: Path) -> None:
    """`poolnode token --user`, then the tool and the client on a TCP port with TLS, and nothing but the token."""
    home = nodes.directory("home")
    whole = nodes.start("whole", ALL).ready()
    made = poolnode("token", "--user", own_name(), "--lifetime", "10m", POOLNODE_ADDRESS=whole.address)
    assert made.returncode == 0, made.stderr
    token = made.stdout.strip()
    said = whole.said("ready")["address"]
    assert said.startswith("tcp://127.0.0.1:")
    away = {"POOLNODE_ADDRESS": said, "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    assert "nothing here to show" in one_line(poolnode("q", **away))
    away["POOLNODE_TOKEN"] = token
    script = program(home, "for n in 1 2 3 4 5; do echo line $n; done")
    (home / "a.sub").write_text(f"executable = {script}\noutput = out\nqueue\n")
    done = poolnode("submit", "--wait", "a.sub", cwd=home, **away)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (home / "out").read_text().endswith("line 5\n")
    (row,) = [json.loads(line) for line in poolnode("history", "--json", **away).stdout.splitlines()]
    assert row["Owner"] == own_name()
    assert poolnode("tail", "-n", "2", "1.0", **away).stdout == "line 4\nline 5\n"
    network = UserNetwork({"POOLNODE_TOKEN": token})
    async with await Pool.connect(said, network=network) as pool:
        cluster = await pool.submit({"executable": "/bin/true"}, iwd=str(home))
        (result,) = await cluster.wait(20)
        assert result.ok, result
    # A user's token lets nobody do what is the administrator's, and no machine in.
    for command in (("token",), ("reload",), ("stop",)):
        assert "administer" in one_line(poolnode(*command, **away))
    stranger = nodes.start("stranger", "startd", join=token)
    assert stranger.ended() != 0
    assert "lets a user in, not a machine" in stranger.text
    old = poolnode("token", "--user", own_name(), "--lifetime", "1", POOLNODE_ADDRESS=whole.address).stdout.strip()
    ends = time.time() + 1
    await until(lambda: time.time() > ends, "the token to expire")
    assert "expired" in one_line(poolnode("q", **{**away, "POOLNODE_TOKEN": old}))
    assert "not whole" in one_line(poolnode("q", **{**away, "POOLNODE_TOKEN": token[:-3]}))
    whole.stop()


def test_who_has_no_jobs_is_said_to_have_none(nodes: Nodes) -> None:
    whole = nodes.start("whole", ALL).ready()
    for command in (("rm", "nobody-here"), ("hold", "nobody-here"), ("prio", "-p", "1", "nobody-here")):
        done = poolnode(*command, POOLNODE_ADDRESS=whole.address)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == "poolnode: nobody-here has no jobs in the queue\n"


async def test_a_large_file_goes_in_pieces_by_itself(nodes: Nodes) -> None:
    home = nodes.directory("home")
    whole = nodes.start("whole", ALL).ready()
    (home / "big.sub").write_text("executable = /bin/true\nrequirements = False\narguments = $(Process)\nqueue 21000\n")
    done = poolnode("submit", "big.sub", cwd=home, POOLNODE_ADDRESS=whole.address)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "21,000 jobs submitted to cluster 1\n"
    async with client(whole) as pool:
        (last,) = await pool.jobs(ids=[(1, 20999)])
        assert last.value("Arguments", last.value("Args")) == "20999"
        done = poolnode("rm", "1", POOLNODE_ADDRESS=whole.address)
        assert done.stdout == "21,000 jobs removed\n", done.stderr
        assert await pool.jobs() == []
