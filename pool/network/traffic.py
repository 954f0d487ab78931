"""The packets that a job's relay has carried: as its report has them, and in words for `poolnode inspect`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from struct import Struct

from pool.jobs.network import rank_name
from pool.jobs.network_use import size_in_words
from pool.network.way_out_process import OutsideTraffic

REPORT, PAIR = Struct("=6Q"), Struct("=IIQQ")
#: The number that stands for all parts at once: a broadcast or multicast.
ALL = 65_000
#: The number that stands for all addresses outside the network.
OUTSIDE = 65_001
#: So many parts are named, those with the most bytes first.
NAMED = 8


@dataclass(frozen=True, slots=True)
class Traffic:
    """The packets of a job's network on one machine, since its relay began.

    Attributes:
        pairs: (from, to) of parts to (packets, bytes); `to` is None for packets to all. Of parts here
            only; either may be OUTSIDE.
        forged, malformed, outside, unreachable: packets that were refused, by the reason.
        dropped: packets for which there was no room.
    """

    pairs: dict[tuple[int, int | None], tuple[int, int]]
    forged: int = 0
    malformed: int = 0
    outside: int = 0
    unreachable: int = 0
    dropped: int = 0


def unpack_traffic(data: bytes) -> Traffic:
    """The relay's answer to REPORT.

    Raises:
        ValueError: it is not one.
    """
    if len(data) < REPORT.size:
        raise ValueError("cut off")
    forged, malformed, outside, unreachable, dropped, count = REPORT.unpack_from(data)
    if len(data) != REPORT.size + count * PAIR.size:
        raise ValueError("cut off")
    rows = PAIR.iter_unpack(data[REPORT.size :])
    pairs = {(one, None if to == ALL else to): (frames, size) for one, to, frames, size in rows}
    return Traffic(pairs, forged, malformed, outside, unreachable, dropped)


def in_words(part: int, before: Traffic, after: Traffic, seconds: float) -> str:
    """The packets that a part has sent, and the packets of its machine that went nowhere; empty for none.

    Args:
        before, after: at both ends of a time of so many seconds, for the rates.
    """
    sent = [(size, frames, to) for (one, to), (frames, size) in after.pairs.items() if one == part]
    sent.sort(key=lambda row: -row[0])
    said = []
    for size, _, to in sent[:NAMED]:
        earlier = before.pairs.get((part, to), (0, 0))[1]
        rate = f" ({size_in_words(max(0, size - earlier) / seconds)}/s)" if seconds > 0 and size > earlier else ""
        said.append(f"{size_in_words(size)} to {_name(to)}{rate}")
    if len(sent) > NAMED:
        said.append(f"{size_in_words(sum(size for size, _, _ in sent[NAMED:]))} to {len(sent) - NAMED} more")
    lost = (
        (after.dropped, "dropped, since a link or a part was too slow"),
        (after.unreachable, "to parts that are not there"),
        (after.outside, "to addresses outside its network"),
        (after.forged, "with an address of another"),
        (after.malformed, "of another kind than IP"),
    )
    said += [f"{count:,} packets {why}" for count, why in lost if count]
    if (got := after.pairs.get((OUTSIDE, part))) is not None:
        said.append(f"{size_in_words(got[1])} came from outside")
    return f"has sent {', '.join(said)}" if sent else ", ".join(said)


def _name(to: int | None) -> str:
    return "all" if to is None else "outside" if to == OUTSIDE else rank_name(to)


def outside_in_words(seen: OutsideTraffic) -> str:
    """The connections of the parts of a machine to the outside; empty for none."""
    last = f" (the latest to {seen.last_refused})" if seen.last_refused else ""
    counts = (
        (seen.open, "are open to the outside"),
        (seen.opened, "were made"),
        (seen.refused, f"were not allowed by the machine's JOB_NETWORK_DESTINATIONS{last}"),
        (seen.failed, "were refused there"),
        (seen.full, "were too many at a time"),
    )
    said = [f"{count:,} {what}" for count, what in counts if count]
    return f"connections: {', '.join(said)}" if said else ""


def down_in_words(down: Mapping[str, float]) -> str:
    """The machines to which there is no link, with the seconds for which there is none; empty for none."""
    names = [f"{name} (for {seconds:.0f} s)" for name, seconds in sorted(down.items())]
    if not names:
        return ""
    return f"no link to {', '.join(names[:NAMED])}{f' and {len(names) - NAMED} more' if len(names) > NAMED else ''}"


def direct_in_words(names: Iterable[str]) -> str:
    """The machines of other pools that are reached directly; empty for none."""
    found = sorted(names)
    if not found:
        return ""
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return f"link to {', '.join(found[:NAMED])}{more} is direct"


def by_third_in_words(by: Mapping[str, str]) -> str:
    """The machines that are reached by a third node, with its name; empty for none."""
    names = [f"{name} goes by {node}" for name, node in sorted(by.items())]
    if not names:
        return ""
    return f"link to {', '.join(names[:NAMED])}{f' and {len(names) - NAMED} more' if len(names) > NAMED else ''}"
