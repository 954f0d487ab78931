"""The network of a job: what is written, what it asks of a machine, addresses and names of its parts."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.classad import ClassAd
from pool.jobs import network
from pool.jobs.activation import activation
from pool.jobs.description import DescriptionError, SubmitFacts, read_description
from pool.jobs.description.check import FACTS, IWD, Fixtures


def job(text: str, facts: SubmitFacts = FACTS) -> ClassAd:
    """The ad of a job with these commands."""
    description = read_description(
        f"executable = /bin/sleep\n{text}\nqueue\n",
        iwd=IWD,
        environ={},
        user="alice",
        facts=facts,
        files=Fixtures({}),
        cluster=1,
        check_files=False,
    )
    return ClassAd.from_wire({**description.clusters[0].ad})


@pytest.mark.parametrize(
    ("text", "wish", "networking", "clause"),
    [
        ("", "", True, ""),
        ("job_network = host", "host", True, 'TARGET.JobNetwork == "host"'),
        ("job_network = Private", "private", True, "TARGET.HasPrivateNetwork"),
        ("job_network = private+out", "private+out", True, "TARGET.HasNetworkOut"),
        ("job_network = none", "none", False, ""),
        ("job_network = private\nrequirements = TARGET.HasPrivateNetwork =!= true", "private", True, ""),
    ],
)
def test_what_a_job_asks_for(text: str, wish: str, networking: bool, clause: str) -> None:
    ad = job(text)
    start = activation(ad, ClassAd({"FileSystemDomain": FACTS.filesystem_domain}), 1, None)
    assert (start.job_network, start.network) == (wish, networking)
    asked = str(ad.get("Requirements"))
    assert clause in asked
    assert ("Network" in asked) is bool(clause or "=!=" in asked)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("job_network = privat", "did you mean private"),
        ("job_network = private-out", "did you mean private"),
        ("job_network = bridge", "expected host, private.out, private or none"),
        ("job_network = private\nwant_job_networking = false", "also asks for no network"),
        ("outside_connections = rest", "expected refuse or reset for 'outside_connections'.*did you mean reset"),
        ("outside_connections = true", "expected refuse or reset"),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(DescriptionError, match=message):
        job(text)


def test_a_job_may_ask_for_less_than_its_machine_gives_and_never_for_more() -> None:
    order = network.MODES
    for machine in order:
        assert network.chosen("", True, machine) == machine
        assert network.chosen("", False, machine) == "none"
        for wish in order:
            given = network.chosen(wish, True, machine)
            assert given == (wish if order.index(wish) <= order.index(machine) else None)


def test_what_a_machine_says() -> None:
    both = {"HasPrivateNetwork": True, "HasNetworkOut": True}
    assert network.offered("", "host", "") == {"JobNetwork": "host", **both}
    assert network.offered("", "private+out", "") == {"JobNetwork": "private+out", **both}
    closed = {"JobNetwork": "host", "HasPrivateNetwork": True, "HasNetworkOut": False, "NetworkOutWhy": "no rules"}
    assert network.offered("", "host", "no rules") == closed
    for machine, private in (("private", True), ("none", False)):
        why = f"its administrator has set JOB_NETWORK = {machine}"
        facts = {"JobNetwork": machine, "HasPrivateNetwork": private, "HasNetworkOut": False, "NetworkOutWhy": why}
        assert network.offered("", machine, "") == facts | ({} if private else {"PrivateNetworkWhy": why})
    why = "there is no veth"
    lacking = {"HasPrivateNetwork": False, "PrivateNetworkWhy": why, "HasNetworkOut": False, "NetworkOutWhy": why}
    assert network.offered(why, "host", "no rules") == {"JobNetwork": "host", **lacking}


@given(st.integers(0, network.MOST_ADDRESSES - 1), st.integers(0, network.MOST_ADDRESSES - 1))
def test_every_part_has_addresses_of_its_own(one: int, other: int) -> None:
    for address in (network.address4, network.address6):
        assert (address(one) == address(other)) is (one == other)
    assert ipaddress.IPv4Address(network.address4(one)) in network.RANGE4
    assert ipaddress.IPv6Address(network.address6(one)) in network.RANGE6
    assert network.address4(one) != str(network.RANGE4.broadcast_address)


def test_all_names_lead_to_their_parts() -> None:
    hosts = network.hosts_file(["a.example", "b.example", "a.example", "", "rank0", "not a name\n6.6.6.6 rank1", "7"])
    told = {name: line.split()[0] for line in hosts.splitlines() for name in line.split()[1:] if "::" not in line}
    assert told == {
        "localhost": "127.0.0.1",
        **{f"rank{part}": f"10.77.0.{part + 1}" for part in range(7)},
        "a.example": "10.77.0.1",
        "a": "10.77.0.1",
        "b.example": "10.77.0.2",
        "b": "10.77.0.2",
    }
    assert "6.6.6.6" not in hosts


@pytest.mark.parametrize(
    ("own", "hosts", "told"),
    [
        (0, ("a", "b", "a"), "10.77.0.1 10.77.0.2 10.77.0.3"),
        (1, ("", "b", ""), "- 10.77.0.2 -"),
        (1, ("a", "b"), "10.77.0.1 10.77.0.2 -"),
        (2, (), "- - 10.77.0.3"),
    ],
)
def test_a_node_is_told_the_addresses_of_those_in_its_network(own: int, hosts: tuple[str, ...], told: str) -> None:
    assert network.node_addresses(3, own, hosts) == told


@pytest.mark.parametrize(
    ("text", "reset"),
    [("", False), ("outside_connections = refuse", False), ("outside_connections = Reset", True)],
)
def test_whether_connections_to_the_outside_are_reset(text: str, reset: bool) -> None:
    assert activation(job(text), ClassAd({}), 1, None).reset_connections is reset
