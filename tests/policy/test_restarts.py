"""Back-off and the limit per hour (EV 2.4)."""

from pool.policy.restarts import FIRST_DELAY, HOUR, LONGEST_DELAY, Restarts


def test_delay_doubles_up_to_a_bound() -> None:
    restarts = Restarts(100)
    delays = [restarts.failed(float(second), float(second)) for second in range(10)]
    assert delays[:3] == [FIRST_DELAY, FIRST_DELAY * 2, FIRST_DELAY * 4]
    assert delays[-1] == LONGEST_DELAY


def test_a_role_that_ran_well_starts_again_quickly() -> None:
    restarts = Restarts(100)
    for second in range(6):
        restarts.failed(float(second), float(second))
    assert restarts.failed(1000.0, 10.0) == FIRST_DELAY


def test_given_up_after_the_limit_within_an_hour() -> None:
    restarts = Restarts(3)
    assert [restarts.failed(t, t) is None for t in (0.0, 1.0, 2.0, 3.0)] == [False, False, False, True]


def test_failures_older_than_an_hour_do_not_count() -> None:
    restarts = Restarts(2)
    restarts.failed(0.0, 0.0)
    restarts.failed(1.0, 1.0)
    assert restarts.failed(HOUR + 0.5, HOUR) is not None
