"""JOB_NETWORK_DESTINATIONS: what can be written, and the rules and names that it comes to."""

from __future__ import annotations

import ipaddress
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.jobs.destinations import Destination, names_of, outside_names, pack_rules, parse_destinations, resolver_of

RESOLV = "# made by hand\nsearch example.org\nnameserver not.an.address\nnameserver 10.0.0.53\nnameserver 10.0.0.54\n"


def test_all_that_can_be_written() -> None:
    text = "10.1.0.0/16:443, [2001:db8::]/32:80-443 192.0.2.7 pypi.org:443\tdns,localhost:5432 *:1-1023 [::1] DNS"
    net = ipaddress.ip_network
    assert parse_destinations(text) == (
        Destination("", net("10.1.0.0/16"), 443, 443),
        Destination("", net("2001:db8::/32"), 80, 443),
        Destination("", net("192.0.2.7/32"), 0, 65535),
        Destination("pypi.org", None, 443, 443),
        Destination("dns", None, 53, 53),
        Destination("localhost", None, 5432, 5432),
        Destination("*", None, 1, 1023),
        Destination("", net("::1/128"), 0, 65535),
        Destination("dns", None, 53, 53),
    )
    assert parse_destinations("") == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("localhost", "are named, as in localhost:5432"),
        ("10.1.2.3/16", "bits beyond its range"),
        ("10.1.2.300", "neither an address nor a name"),
        ("a_b:80", "neither an address nor a name"),
        ("name:70000", "ports are 0 to 65535"),
        ("name:90-80", "beyond the last one"),
        ("name:http", "is no destination"),
        ("10.77.0.0/24:80", "those of jobs' own networks"),
        ("fe80::1:80", "is no destination"),
        ("name:²", "is no destination"),
    ],
)
def test_all_else_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_destinations(text)


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    said = ""
    try:
        parse_destinations(text)
    except ValueError as error:
        said = str(error)
    assert "\n" not in said


def test_the_names_of_a_job() -> None:
    given = parse_destinations("pypi.org:443, localhost:5432, dns, gone.example:1")
    assert names_of(given) == ["gone.example", "pypi.org"]
    found = {"pypi.org": ("192.0.2.1", "2001:db8::1")}
    names = outside_names(given, found, RESOLV)
    assert names.hosts == ("192.0.2.1 pypi.org", "2001:db8::1 pypi.org", "192.0.2.253 host.poolnode.internal")
    assert names.resolver == "search example.org\nnameserver 192.0.2.254\n"
    assert outside_names(parse_destinations("*:443"), {}, RESOLV).resolver.startswith("# names outside")
    assert outside_names(given, found, "").resolver.startswith("# names outside")
    assert (resolver_of(RESOLV), resolver_of("")) == ("10.0.0.53", "")


def test_the_rules_as_the_way_out_reads_them() -> None:
    given = parse_destinations("10.1.0.0/16:443 [2001:db8::7]:80-90 name:1 dns localhost:5 *:2")
    packed = pack_rules(given, {"name": ("192.0.2.1",)}, "10.0.0.53", [("10.9.9.9", 9618), ("", 7)])
    rows = []
    for address, to, first, last, port, prefix, flags in struct.iter_unpack("=16s16sHHHBB", packed):
        there = str(ipaddress.IPv6Address(to)) if any(to) else ""
        rows.append((str(ipaddress.IPv6Address(address)), prefix, first, last, flags, there))
        assert port == 0
    assert rows == [
        ("::ffff:a09:909", 128, 9618, 9618, 2, ""),
        ("::ffff:0:0", 96, 7, 7, 2, ""),
        ("::", 0, 7, 7, 2, ""),
        ("::ffff:a01:0", 112, 443, 443, 0, ""),
        ("2001:db8::7", 128, 80, 90, 1, ""),
        ("::ffff:c000:201", 128, 1, 1, 0, ""),
        ("::ffff:c000:2fe", 128, 53, 53, 4, "::ffff:a00:35"),
        ("::ffff:c000:2fd", 128, 5, 5, 4, "::ffff:7f00:1"),
        ("::ffff:0:0", 96, 2, 2, 0, ""),
        ("::", 0, 2, 2, 0, ""),
    ]
    assert pack_rules((), {}, "") == b""
