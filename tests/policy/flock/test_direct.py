"""Which addresses of another pool this pool's machines connect to, and which mistakes in the file are named."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest

from pool.policy.flock.agreements import BadAgreement, read_agreements
from pool.policy.flock.direct import MOST_NETWORKS, BadNetwork, DirectTerms, NotDirect, hosts_of, read_networks

OWN = hosts_of(["tcp://192.0.2.9:9618", "tcp://192.0.2.10:9618#startd", "unix:///run/node.sock", "nonsense"])
OFFER = {"address": "tcp://192.0.2.1:9618", "ticket": "t", "key": bytes(32)}


def terms(*networks: str) -> DirectTerms:
    return DirectTerms("chem", read_networks(networks), OWN)


def offer(address: Any, *networks: str) -> str:
    return str(terms(*networks).checked_offer({**OFFER, "address": address})["address"])


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("tcp://192.0.2.1:9618", "192.0.2.0/24"),
        ("tcp://192.0.2.1:1", "192.0.2.1"),
        ("tcp://[2001:db8::5]:9618", "2001:db8::/32"),
        ("tcp://[::ffff:192.0.2.1]:9618", "192.0.2.0/24"),
        ("tcp://127.0.0.1:9618", "127.0.0.1"),
        ("tcp://169.254.7.7:9618", "169.254.7.7/32"),
        ("tcp://192.0.2.9:80", "192.0.2.9"),
    ],
)
def test_an_address_in_a_network_of_the_agreement_is_taken(address: str, network: str) -> None:
    assert offer(address, "198.51.100.0/24", network) == address


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("tcp://198.51.100.1:9618", "in no network of the agreement"),
        ("tcp://[2001:db8::5]:9618", "in no network of the agreement"),
        ("tcp://169.254.169.254:80", "a cloud's metadata"),
        ("tcp://[::ffff:169.254.169.254]:80", "a cloud's metadata"),
        ("tcp://127.0.0.1:9618", "each machine itself"),
        ("tcp://[::ffff:127.0.0.1]:9618", "each machine itself"),
        ("tcp://0.0.0.0:9618", "each machine itself"),
        ("tcp://224.0.0.1:9618", "no machine"),
        ("tcp://255.255.255.255:9618", "no machine"),
        ("tcp://192.0.2.9:22", "a machine of this pool"),
        ("tcp://192.0.2.10:9618", "a machine of this pool"),
        ("tcp://metadata.internal:80", "no address of a machine"),
        ("tcp://0300.0.2.1:80", "no address of a machine"),
        ("tcp://3221225985:80", "no address of a machine"),
        ("tcp://192.0.2.1:0", "no address of a machine"),
        ("unix:///run/docker.sock", "no address of a machine"),
        ("local:", "no address of a machine"),
        ("mem://chem", "no address of a machine"),
        ("", "no address of a machine"),
        ("tcp://" + "1" * 200, "makes no sense"),
        (None, "makes no sense"),
        (b"tcp://192.0.2.1:9618", "makes no sense"),
    ],
)
def test_no_other_address_is_taken_however_wide_the_networks(address: Any, words: str) -> None:
    with pytest.raises(NotDirect) as error:
        offer(address, *(["192.0.2.0/24"] if "no network" in words else ["0.0.0.0/0"]))
    assert words in str(error.value)


def test_loopback_and_link_local_of_ip_6_are_no_others() -> None:
    for address in ("[::1]", "[fe80::1]", "[ff02::1]", "[::]"):
        with pytest.raises(NotDirect):
            offer(f"tcp://{address}:9618", "::/0")


@pytest.mark.parametrize(
    "more",
    [{"ticket": 5}, {"ticket": "t" * 101}, {"key": bytes(31)}, {"key": "x" * 32}, {"key": None}, {"address": None}],
)
def test_an_offer_that_makes_no_sense_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(NotDirect):
        terms("192.0.2.0/24").checked_offer({**OFFER, **more})
    nothing: tuple[Any, ...] = (None, [], "offer", {})
    for said in nothing:
        with pytest.raises(NotDirect):
            terms("192.0.2.0/24").checked_offer(said)


def test_nothing_else_of_an_offer_is_passed_on() -> None:
    assert terms("192.0.2.0/24").checked_offer({**OFFER, "more": "x" * 1000}) == OFFER


def test_without_networks_nothing_is_agreed() -> None:
    for check in (terms().check_agreed, lambda: terms().checked_offer(OFFER)):
        with pytest.raises(NotDirect, match="do not connect directly"):
            check()
    terms("192.0.2.0/24").check_agreed()


def test_the_file_names_networks() -> None:
    found = read_agreements('[chem]\ndirect = ["192.0.2.0/24", "2001:db8::1"]\n[bio]\nin = true\n')
    assert found["chem"].direct == (ipaddress.ip_network("192.0.2.0/24"), ipaddress.ip_network("2001:db8::1/128"))
    assert found["bio"].direct == ()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("true", "direct of [chem] is not a list of networks"),
        ('"192.0.2.0/24"', "direct of [chem] is not a list of networks"),
        ('["chem.example"]', "'chem.example' is no network"),
        ('["192.0.2.1/24"]', "is no network"),
        ("[7]", "7 is no network"),
    ],
)
def test_a_network_that_is_none_is_named(value: str, words: str) -> None:
    with pytest.raises(BadAgreement) as error:
        read_agreements(f"[chem]\ndirect = {value}\n")
    assert words in str(error.value)


def test_an_agreement_names_so_many_networks() -> None:
    with pytest.raises(BadNetwork):
        read_networks(["192.0.2.1"] * (MOST_NETWORKS + 1))
