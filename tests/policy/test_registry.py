"""The collector's memory: differences, expiry, and who may advertise what."""

import pytest

from pool.policy.registry import AdNameTaken, Registry, Update, difference


def whole(sequence: int = 1, *, incarnation: str = "a", lifetime: float = 60.0, **ad: object) -> Update:
    return Update("Machine", "slot1@m", incarnation, sequence, True, dict(ad), lifetime=lifetime)


def part(sequence: int, *, incarnation: str = "a", gone: tuple[str, ...] = (), **ad: object) -> Update:
    return Update("Machine", "slot1@m", incarnation, sequence, False, dict(ad), gone, lifetime=60.0)


def test_differences_follow_on() -> None:
    registry = Registry()
    registry.update(whole(State="Owner", Cpus=4), "m", 0.0)
    entry = registry.update(part(2, State="Unclaimed", gone=("Cpus",)), "m", 1.0)
    assert entry is not None
    assert entry.ad == {"State": "Unclaimed"}


@pytest.mark.parametrize("update", [part(3, x=1), part(1, x=1), part(2, incarnation="b", x=1)])
def test_a_gap_or_a_restart_asks_for_everything(update: Update) -> None:
    registry = Registry()
    registry.update(whole(), "m", 0.0)
    assert registry.update(update, "m", 1.0) is None


def test_a_difference_for_an_unknown_ad_asks_for_everything() -> None:
    assert Registry().update(part(1, x=1), "m", 0.0) is None


def test_ads_expire_unless_renewed() -> None:
    registry = Registry()
    registry.update(whole(), "m", 0.0)
    registry.update(part(2), "m", 50.0)
    assert registry.expire(60.0) == []
    assert registry.expire(110.0) == [("Machine", "slot1@m")]
    assert registry.next_expiry() is None


def test_a_name_cannot_be_taken_over_while_it_is_alive() -> None:
    registry = Registry()
    registry.update(whole(), "m", 0.0)
    with pytest.raises(AdNameTaken, match="node m advertises"):
        registry.update(whole(), "stranger", 1.0)
    assert not registry.invalidate("Machine", "slot1@m", "stranger")
    registry.expire(61.0)
    assert registry.update(whole(), "stranger", 62.0) is not None


def test_a_lifetime_is_bounded() -> None:
    registry = Registry()
    registry.update(whole(lifetime=1e12), "m", 0.0)
    due = registry.next_expiry()
    assert due is not None
    assert due <= 24 * 3600.0


def test_difference_tells_true_from_one() -> None:
    changed, gone = difference({"a": 1, "b": 2, "c": 3}, {"a": True, "b": 2, "d": 4})
    assert changed == {"a": True, "d": 4}
    assert gone == ("c",)


def test_ads_of_nodes_that_are_put_out_go_at_once() -> None:
    registry = Registry()
    registry.update(whole(), "m#1a", 0.0)
    assert registry.drop_of({"mm", "1a"}) == []
    assert registry.drop_of({"m"}) == [("Machine", "slot1@m")]
    assert list(registry.of_kind("Any")) == []
