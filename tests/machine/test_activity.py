"""Signs of a person: terminals by access time, keyboard by interrupts, devices by events, and clocks that are set."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pool.machine.activity import (
    AGAIN,
    FOREVER,
    GRAIN,
    InputEvents,
    KeyInterrupts,
    LastChanges,
    Terminals,
    UserActivity,
)

WALL = 1_700_000_000.0


def touch(path: Path, when: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.utime(path, (when, WALL))  # the time of writing says nothing


# --- dating touches


def test_the_first_look_trusts_the_time_stamp() -> None:
    touches = LastChanges()
    assert touches.idle(50.0) == FOREVER
    touches.read_stamps({"tty1": WALL - 100, "tty2": WALL - 7}, WALL, 50.0)
    assert touches.idle(50.0) == 7
    assert touches.idle(53.0) == 10


def test_a_change_counts_from_its_time_stamp() -> None:
    touches = LastChanges()
    touches.read_stamps({"a": WALL - 1000}, WALL, 0.0)
    touches.read_stamps({"a": WALL + 2}, WALL + 5, 5.0)
    assert touches.idle(5.0) == 3


@pytest.mark.parametrize("jump", [3600.0, -3600.0, 10.0**8, -(10.0**8)])
def test_a_clock_that_is_set_neither_hides_the_owner_nor_invents_one(jump: float) -> None:
    touches = LastChanges()
    touches.read_stamps({"a": WALL - 1000}, WALL, 0.0)
    touches.read_stamps({"a": WALL - 1000}, WALL + 5 + jump, 5.0)
    assert touches.idle(5.0) == 1005
    touches.read_stamps({"a": WALL + 9 + jump}, WALL + 10 + jump, 10.0)
    assert touches.idle(10.0) == 1
    touches.read_stamps({"a": WALL + 11}, WALL + 15, 15.0)
    assert touches.idle(15.0) <= 5 + GRAIN


def test_a_stamp_of_the_future_is_the_present() -> None:
    touches = LastChanges()
    touches.read_stamps({"a": WALL + 5000}, WALL, 3.0)
    assert touches.idle(3.0) == 0
    touches.read_stamps({"a": WALL + 5000}, WALL + 60, 63.0)
    assert touches.idle(63.0) == 60


def test_a_terminal_that_is_closed_was_touched_all_the_same() -> None:
    touches = LastChanges()
    touches.read_stamps({"pts/1": WALL - 20}, WALL, 0.0)
    touches.read_stamps({}, WALL + 5, 5.0)
    assert touches.idle(5.0) == 25


def test_a_touch_with_the_time_stamp_of_the_one_before_counts() -> None:
    """The clock was 9 s ahead, and is right again 9 s later: both touches have the same time stamp."""
    touches = LastChanges()
    touches.read_stamps({"a": WALL - 500}, WALL, 0.0)
    touches.read_stamps({"a": WALL + 9.99}, WALL + 10, 1.0)
    touches.read_stamps({"a": WALL + 9.99}, WALL + 10, 10.0)
    assert touches.idle(10.0) < 1
    touches.read_stamps({"a": WALL + 9.99}, WALL + 15, 15.0)
    assert touches.idle(15.0) > 5


@given(
    st.lists(st.tuples(st.floats(0.1, 60), st.booleans(), st.floats(-1e9, 1e9)), min_size=1, max_size=30),
)
@example([(1.0, True, 9.0), (9.0, True, 0.0)])
@example([(1.0, True, 9.0), (9.0, False, 0.0)])
@example([(1.0, True, 9.0), (8.5, False, 0.0), (0.5, True, 0.0)])
def test_whatever_the_clock_does_idleness_is_right_to_a_few_seconds(looks: list[tuple[float, bool, float]]) -> None:
    """Looks at intervals; at some of them somebody typed just before; the clock is wrong by anything at each.

    Nobody who types is hidden. An old time stamp that the clock now dates after the last look cannot be distinguished
    from a new one, and counts as a touch.
    """
    touches, now, stamp, last, unclear = LastChanges(), 0.0, WALL - 500, -500.0, -500.0
    touches.read_stamps({"a": stamp}, WALL, now)
    for interval, typed, shift in looks:
        now += interval
        wall = WALL + now + shift
        if typed:
            stamp, last = wall - 0.01, now
        elif -0.001 <= wall - stamp <= interval + 0.001:
            unclear = now - (wall - stamp)
        touches.read_stamps({"a": stamp}, wall, now)
        assert now - max(last, unclear) - 0.1 <= touches.idle(now) <= now - last + 0.1 + GRAIN


# --- terminals


def test_terminals_of_the_console_and_others(tmp_path: Path) -> None:
    touch(tmp_path / "tty1", WALL - 300)
    touch(tmp_path / "ttyS0", WALL - 400)
    touch(tmp_path / "pts" / "3", WALL - 20)
    terminals = Terminals(tmp_path)
    terminals.last_input(WALL, 0.0)
    assert terminals.idle(0.0) == (20, 300)
    touch(tmp_path / "pts" / "4", WALL + 4)
    terminals.last_input(WALL + 5, 5.0)
    assert terminals.idle(5.0) == (1, 305)
    touch(tmp_path / "tty1", WALL + 10)
    terminals.last_input(WALL + 10, 10.0)
    assert terminals.idle(10.0) == (0, 0)


def test_what_is_no_persons_terminal_is_left_out(tmp_path: Path) -> None:
    for name in ("tty", "ttyUSB0", "ttyACM0", "ttyprintk", "null", "pts/ptmx", "ptmx"):
        touch(tmp_path / name, WALL)
    terminals = Terminals(tmp_path)
    terminals.last_input(WALL, 0.0)
    assert terminals.idle(0.0) == (FOREVER, FOREVER)


def test_a_machine_without_terminals(tmp_path: Path) -> None:
    terminals = Terminals(tmp_path / "nowhere")
    terminals.last_input(WALL, 0.0)
    assert terminals.idle(5.0) == (FOREVER, FOREVER)


# --- keyboard and mouse


def interrupt(root: Path, number: int, actions: str, counts: str) -> None:
    (root / str(number)).mkdir(parents=True, exist_ok=True)
    (root / str(number) / "actions").write_text(actions + "\n")
    (root / str(number) / "per_cpu_count").write_text(counts + "\n")


def test_interrupts_of_the_keyboard_are_activity(tmp_path: Path) -> None:
    interrupt(tmp_path, 1, "i8042", "5,0")
    interrupt(tmp_path, 9, "acpi", "1,1")
    keys = KeyInterrupts(tmp_path)
    assert [keys.has_input(), keys.has_input()] == [True, False]  # what was before the first look is not known
    interrupt(tmp_path, 9, "acpi", "2,1")
    assert not keys.has_input()
    interrupt(tmp_path, 1, "i8042", "5,9")
    assert [keys.has_input(), keys.has_input()] == [True, False]


def test_a_machine_without_keyboard_controller(tmp_path: Path) -> None:
    assert not KeyInterrupts(tmp_path / "nowhere").has_input()


@pytest.fixture
def inputs(tmp_path: Path) -> tuple[Path, Path]:
    """/dev/input and /sys/class/input with a keyboard, a mouse, a power button and a joystick, as named pipes."""
    devices, system = tmp_path / "dev", tmp_path / "sys"
    devices.mkdir()
    for number, events, mouse in ((0, "120013", False), (1, "17", True), (2, "3", False), (3, "1b", False)):
        os.mkfifo(devices / f"event{number}")
        (system / f"event{number}/device/capabilities").mkdir(parents=True)
        (system / f"event{number}/device/capabilities/ev").write_text(events + "\n")
        if mouse:
            (system / f"event{number}/device/mouse0").mkdir()
    return devices, system


def test_events_of_keyboard_and_mouse_are_activity(inputs: tuple[Path, Path]) -> None:
    devices, system = inputs
    events = InputEvents(devices, system)
    ends = [os.open(devices / f"event{n}", os.O_RDWR | os.O_NONBLOCK) for n in range(4)]
    try:
        assert [events.has_input(), events.has_input()] == [True, False]  # what was before the first look is not known
        os.write(ends[0], b"k" * 24 * 100)
        assert [events.has_input(), events.has_input()] == [True, False]
        os.write(ends[1], b"m" * 24)
        assert [events.has_input(), events.has_input()] == [True, False]
        os.write(ends[2], b"p" * 24)
        os.write(ends[3], b"j" * 24)
        assert not events.has_input()
    finally:
        events.close()
        for end in ends:
            os.close(end)


def test_devices_come_and_go(inputs: tuple[Path, Path]) -> None:
    devices, system = inputs
    (devices / "event0").rename(devices / "later")
    events = InputEvents(devices, system)
    try:
        # A pipe without writer reads as one that has gone.
        assert not any(events.has_input() for _ in range(3))
        (devices / "later").rename(devices / "event0")
        end = os.open(devices / "event0", os.O_RDWR | os.O_NONBLOCK)
        os.write(end, b"k" * 24)
        assert [events.has_input() for _ in range(AGAIN)].count(True) == 1
        os.close(end)
    finally:
        events.close()
        assert not events.has_input()
        events.close()


def test_all_signs_together(tmp_path: Path) -> None:
    touch(tmp_path / "dev/tty1", WALL - 5000)
    interrupt(tmp_path / "sys/kernel/irq", 1, "i8042", "5")
    activity = UserActivity(tmp_path)
    assert activity.idle_times(WALL - 1000, -1000.0)[1] == 0  # what was before the first look is not known
    touch(tmp_path / "dev/pts/0", WALL - 60)
    assert activity.idle_times(WALL, 0.0) == (60, 1000)
    assert activity.idle_times(WALL + 5, 5.0, 30.0) == (30, 30)
    interrupt(tmp_path / "sys/kernel/irq", 1, "i8042", "6")
    assert activity.idle_times(WALL + 10, 10.0, 35.0) == (0, 0)
    assert activity.idle_times(WALL + 15, 15.0) == (5, 5)
    activity.close()


def test_a_look_costs_the_same_however_much_is_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred tty events a second: nothing watches between two looks, and a look stats each terminal once."""
    for number in range(20):
        touch(tmp_path / "dev" / "pts" / str(number), WALL)
    looked: list[str] = []
    scandir = os.scandir

    def counted(path: Path) -> object:
        looked.append(str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", counted)
    activity = UserActivity(tmp_path)
    for second in range(3):
        for press in range(100):
            touch(tmp_path / "dev" / "pts" / "7", WALL + second + press / 100)
        activity.idle_times(WALL + second + 1, float(second + 1))
    activity.close()
    assert looked.count(str(tmp_path / "dev" / "pts")) == 3
