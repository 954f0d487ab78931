"""The packets of a job's network in words."""

from __future__ import annotations

import pytest

from pool.network.traffic import ALL, PAIR, REPORT, Traffic, in_words, unpack_traffic


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
