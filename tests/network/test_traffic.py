"""The packets of a job's network in words."""

from __future__ import annotations

import pytest

from pool.network.traffic import (
    ALL,
    OUTSIDE,
    PAIR,
    REPORT,
    Traffic,
    down_in_words,
    in_words,
    outside_in_words,
    unpack_traffic,
)
from pool.network.way_out_process import OutsideTraffic, unpack_report


def test_what_a_relay_reports() -> None:
    data = REPORT.pack(1, 2, 3, 4, 5, 2) + PAIR.pack(0, 1, 10, 1000) + PAIR.pack(0, ALL, 1, 60)
    seen = unpack_traffic(data)
    assert seen == Traffic({(0, 1): (10, 1000), (0, None): (1, 60)}, 1, 2, 3, 4, 5)
    for wrong in (b"", data[:-1], data + b"x", REPORT.pack(0, 0, 0, 0, 0, 9)):
        with pytest.raises(ValueError, match="cut off"):
            unpack_traffic(wrong)


def test_bytes_by_pair_rates_and_losses_in_words() -> None:
    before = Traffic({(0, 1): (10, 1_000_000)})
    after = Traffic({(0, 1): (99, 3_000_000), (0, None): (1, 60), (1, 0): (5, 77)}, forged=2, dropped=1_000)
    assert in_words(0, before, after, 0.5) == (
        "has sent 3.0 MB to rank1 (4.0 MB/s), 60 bytes to all (120 bytes/s), "
        "1,000 packets dropped, since a link or a part was too slow, 2 packets with an address of another"
    )
    assert in_words(2, before, Traffic({}), 0.5) == ""
    many = Traffic({(0, to): (1, 100 - to) for to in range(1, 12)})
    assert in_words(0, many, many, 0.5).endswith("to rank8, 270 bytes to 3 more")


def test_machines_out_of_reach_in_words() -> None:
    assert down_in_words({}) == ""
    assert down_in_words({"b": 3.4, "a": 0.0}) == "no link to a (for 0 s), b (for 3 s)"
    assert down_in_words({f"m{n}": 1.0 for n in range(10)}).endswith("m7 (for 1 s) and 2 more")


def test_the_way_out_in_words() -> None:
    after = Traffic({(0, OUTSIDE): (9, 5_000), (OUTSIDE, 0): (8, 70_000), (OUTSIDE, 1): (1, 1)})
    assert in_words(0, after, after, 0.5) == "has sent 5.0 KB to outside, 70.0 KB came from outside"
    assert outside_in_words(OutsideTraffic()) == ""
    seen = OutsideTraffic(open=2, opened=1_500, refused=3, failed=1, full=4, last_refused="192.0.2.1:80")
    assert outside_in_words(seen) == (
        "connections: 2 are open to the outside, 1,500 were made, 3 were not allowed by the machine's "
        "JOB_NETWORK_DESTINATIONS (the latest to 192.0.2.1:80), 1 were refused there, 4 were too many at a time"
    )
    for wrong in (b"", bytes(71), bytes(73)):
        with pytest.raises(ValueError, match="cut off"):
            unpack_report(wrong)
    assert unpack_report(bytes(72)) == OutsideTraffic()
