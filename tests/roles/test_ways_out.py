"""A machine's JOB_NETWORK_DESTINATIONS: the rules of a job, the nodes that stay closed, and settings that are wrong."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from struct import Struct

import pytest

from pool.config import Settings
from pool.network import way_out_program
from pool.policy.shipped import PolicyError
from pool.roles.startd.running import ways_out
from pool.roles.startd.running.ways_out import WaysOut

NAMED, DENIED, CHANGED = 1, 2, 4
#: The addresses of names at this moment.
NAMES: dict[str, tuple[str, ...]] = {}


def rules(packed: bytes) -> set[tuple[str, int, int]]:
    """Each as (network, first port, flags)."""
    found = set()
    for address, _, first, _, _, prefix, flags in Struct("=16s16sHHHBB").iter_unpack(packed):
        six = ipaddress.IPv6Address(address)
        four = six.ipv4_mapped if prefix >= 96 else None
        found.add((f"{four or six}/{prefix - 96 if four else prefix}", first, flags))
    return found


@contextlib.asynccontextmanager
async def machine(
    monkeypatch: pytest.MonkeyPatch, place: Path, setting: str, *closed: str
) -> AsyncIterator[tuple[WaysOut, dict[str, str]]]:
    """The machine's way out, and its settings, which may be changed."""

    async def addresses(name: str) -> tuple[str, ...]:
        with contextlib.suppress(ValueError):
            return (str(ipaddress.ip_address(name)),)
        return NAMES.get(name, ())

    (place / "resolv.conf").write_text("nameserver 192.0.2.53\n")
    monkeypatch.setattr(ways_out, "RESOLV_CONF", place / "resolv.conf")
    monkeypatch.setattr(ways_out, "_addresses", addresses)
    sets = {"JOB_NETWORK_DESTINATIONS": setting}
    log = logging.getLogger("test")

    def settings() -> Settings:
        return Settings.load(None, sets=sets, environ={}, files=False)

    made = WaysOut(settings, way_out_program(), lambda: closed, lambda: None, log)
    task = asyncio.create_task(made.run())
    try:
        yield made, sets
    finally:
        task.cancel()


async def test_nodes_are_closed_by_their_addresses_and_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The port of the machine's node everywhere; of others their addresses; of a name without address everywhere."""
    monkeypatch.setitem(NAMES, "head.example", ("203.0.113.9", "2001:db8::9"))
    own, head = "tcp://myself.example:9618", "tcp://head.example:9700"
    async with machine(monkeypatch, tmp_path, "*", own, head) as (ways, _):
        found = rules(await ways.rules_for(["tcp://[2001:db8::7]:9701", "tcp://lost.example:9702", "unix:///x"], ""))
    everywhere = {(network, port, DENIED) for network in ("0.0.0.0/0", "::/0") for port in (9618, 9702)}
    others = {("203.0.113.9/32", 9700, DENIED), ("2001:db8::9/128", 9700, DENIED), ("2001:db8::7/128", 9701, DENIED)}
    assert found == everywhere | others | {("0.0.0.0/0", 0, 0), ("::/0", 0, 0)}


async def test_names_have_the_addresses_of_the_jobs_hosts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A way out that is started again, by a new node too, opens what the job finds in its /etc/hosts."""
    monkeypatch.setitem(NAMES, "data.example", ("203.0.113.1", "2001:db8::1"))
    async with machine(monkeypatch, tmp_path, "data.example:443", "unix:///own") as (ways, _):
        await ways.rules_for([], "")
        names = ways.names()
        assert names is not None
        hosts = "\n".join(names.hosts)
        monkeypatch.setitem(NAMES, "data.example", ("198.51.100.1",))
        await ways._resolve()
        found = rules(await ways.rules_for([], hosts))
    assert found == {("203.0.113.1/32", 443, 0), ("2001:db8::1/128", 443, 0)}


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("pypi.org:https", "pypi.org:https is no destination: write ADDRESS/BITS:PORT"),
        ("10.0.0.0/8:70000", "10.0.0.0/8:70000: ports are 0 to 65535"),
        ("10.0.0.0/8:90-80", "the first port is beyond the last one"),
        ("10.0.0.1/8", "the address has bits beyond its range"),
        ("localhost", "are named, as in localhost:5432"),
        ("10.77.0.0/16", "these addresses are those of jobs' own networks"),
        ("1.2.3:80", "1.2.3 is neither an address nor a name"),
    ],
)
async def test_a_setting_that_is_wrong_is_refused_and_the_one_before_stays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, setting: str, said: str
) -> None:
    async with machine(monkeypatch, tmp_path, "203.0.113.1:80", "unix:///own") as (ways, sets):
        sets["JOB_NETWORK_DESTINATIONS"] = setting
        with pytest.raises(PolicyError, match=r"^JOB_NETWORK_DESTINATIONS: ") as refused:
            ways.reload()
        assert said in str(refused.value)
        assert "\n" not in str(refused.value)
        assert rules(await ways.rules_for([], "")) == {("203.0.113.1/32", 80, NAMED)}


async def test_a_changed_setting_counts_for_the_next_job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with machine(monkeypatch, tmp_path, "203.0.113.1:80", "unix:///own") as (ways, sets):
        await ways.rules_for([], "")
        assert not ways.why_not
        sets["JOB_NETWORK_DESTINATIONS"] = "203.0.113.2:81 dns"
        ways.reload()
        assert ways.why_not
        expected = {("203.0.113.2/32", 81, NAMED), ("192.0.2.254/32", 53, CHANGED)}
        assert rules(await ways.rules_for([], "")) == expected
        assert not ways.why_not


async def test_a_name_without_address_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with machine(monkeypatch, tmp_path, "lost.example:80", "unix:///own") as (ways, _):
        assert rules(await ways.rules_for([], "")) == set()
    (record,) = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert "JOB_NETWORK_DESTINATIONS names a host without address" in record.getMessage()
    assert vars(record)["host"] == "lost.example"
