"""Which links a node carries for machines that do not reach each other: whose, and how many."""

from __future__ import annotations

import pytest

from pool.policy.third_node import MOST, MOST_IN_MAKING, PAUSE, CarriedLinks, LinkAsk

MACHINES = frozenset({"one", "two", "three"})


def test_a_link_is_carried_between_two_machines_of_the_job() -> None:
    links, ask = CarriedLinks(), LinkAsk("job", "one", "two")
    assert links.begin(ask, MACHINES, 0.0) == ""
    links.settle(ask.pair, there=True)
    assert links.begin(ask, MACHINES, PAUSE) == "", "it takes the place of the earlier one"


@pytest.mark.parametrize(("asker", "other"), [("one", "stranger"), ("stranger", "one"), ("one", "one"), ("", "one")])
def test_machines_without_a_part_get_none(asker: str, other: str) -> None:
    assert "no part of the job" in CarriedLinks().begin(LinkAsk("job", asker, other), MACHINES, 0.0)


def test_the_same_two_machines_ask_again_only_after_a_pause_whichever_asks() -> None:
    links, ask = CarriedLinks(), LinkAsk("job", "one", "two")
    assert not links.begin(ask, MACHINES, 0.0)
    assert "a moment ago" in links.begin(LinkAsk("job", "two", "one"), MACHINES, 9.0), "it is being made"
    links.settle(ask.pair, there=False)
    assert not links.begin(ask, MACHINES, 9.0)
    links.settle(ask.pair, there=False)
    assert "a moment ago" in links.begin(ask, MACHINES, 9.0 + PAUSE / 2)
    assert not links.begin(LinkAsk("job", "one", "three"), MACHINES, 9.0 + PAUSE / 2)
    assert not links.begin(ask, MACHINES, 9.0 + PAUSE)


def made(links: CarriedLinks, job: str, count: int, *, settles: bool) -> int:
    """How many links a job gets that asks for so many."""
    names = frozenset(map(str, range(count + 1)))
    got = 0
    for number in range(count):
        ask = LinkAsk(job, str(number), str(count))
        if not links.begin(ask, names, 0.0):
            got += 1
            if settles:
                links.settle(ask.pair, there=True)
    return got


def test_one_job_leaves_links_for_others() -> None:
    links = CarriedLinks()
    assert made(links, "greedy", MOST, settles=True) == MOST // 2
    assert made(links, "second", MOST, settles=True) == MOST // 4
    assert made(links, "third", 10, settles=True) == 10
    links = CarriedLinks()
    assert made(links, "greedy", MOST, settles=False) == MOST_IN_MAKING // 2
    assert made(links, "second", 5, settles=False) == 5


def test_ended_links_make_room() -> None:
    links = CarriedLinks()
    assert made(links, "job", MOST, settles=True) == MOST // 2
    for number in range(MOST):
        links.end(LinkAsk("job", str(number), str(MOST)).pair)
    assert links.begin(LinkAsk("job", "one", "two"), MACHINES, PAUSE) == ""
    assert not links._all - {LinkAsk("job", "one", "two").pair}
    assert len(links._asked) == 1
