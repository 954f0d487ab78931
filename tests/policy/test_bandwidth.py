"""A bounded bandwidth is kept, shared evenly, and nobody waits for what others have saved up or spent."""

from __future__ import annotations

from collections import Counter

from pool.policy.bandwidth import FairBandwidth


def sent(share: FairBandwidth, wishes: dict[str, list[int]], seconds: float) -> Counter[str]:
    """The bytes that each has sent after a time, each asking for its next piece when it got the one before."""
    now, done = 0.0, Counter[str]()
    who = {}
    for name, sizes in wishes.items():
        who[share.request(name, sizes[0], 0.0)] = (name, sizes[0], 1)
    while now < seconds:
        given, again = share.grant(now)
        for number in given:
            name, size, place = who.pop(number)
            done[name] += size
            if place < len(wishes[name]):
                following = wishes[name][place]
                who[share.request(name, following, now)] = (name, following, place + 1)
        if not given:
            if again is None:
                break
            now = again
    return done


def test_the_bound_is_kept() -> None:
    done = sent(FairBandwidth(1000.0), {"a": [100] * 1000}, 10.0)
    assert 9_900 <= done["a"] <= 10_200


def test_large_and_small_pieces_share_evenly() -> None:
    done = sent(FairBandwidth(1000.0), {"a": [250] * 1000, "b": [10] * 100_000, "c": [100] * 1000}, 30.0)
    assert max(done.values()) - min(done.values()) <= 500


def test_who_sends_little_hardly_waits() -> None:
    share = FairBandwidth(1000.0, burst=0.0)
    for _ in range(50):
        share.request("greedy", 100, 0.0)
    assert share.grant(0.0)[0] == [1]
    small = share.request("modest", 10, 0.0)
    assert small in share.grant(0.2)[0][:3]


def test_nobody_saves_up() -> None:
    share = FairBandwidth(1000.0)
    share.request("a", 1000, 0.0)
    share.grant(0.0)
    first, second = share.request("idle until now", 500, 100.0), share.request("a", 500, 100.0)
    third = share.request("idle until now", 500, 100.0)
    order = []
    now = 100.0
    while share.waiting:
        given, again = share.grant(now)
        order += given
        now = again or now
    assert order.index(second) < order.index(third)
    assert order[0] in (first, second)


def test_without_a_bound_nobody_waits() -> None:
    share = FairBandwidth(0.0)
    numbers = [share.request(who, 10**9, 0.0) for who in "abc"]
    assert share.grant(0.0) == (numbers, None)


def test_who_gives_up_takes_nothing_from_others() -> None:
    share = FairBandwidth(10.0, burst=0.0)
    share.request("a", 10, 0.0)
    gone = share.request("b", 1000, 0.0)
    last = share.request("c", 10, 0.0)
    share.withdraw(gone)
    assert share.grant(0.0)[0] == [1]
    assert share.grant(1.0)[0] == [last]
