"""Numbers of other alphabets, superscripts, underlines and thousands of digits, in each command that there is: none
ends the submit as a defect of the program, and none is taken for a number.
"""

from __future__ import annotations

from typing import Any

import pytest

from pool.jobs.description import DescriptionError
from pool.jobs.description.commands import NAMES
from tests.jobs.description.support import read, refusal

PLAIN = "executable = /bin/true\n"
MPI = "universe = mpi\nmpi = mpich\nexecutable = /bin/heat\n"
MANY = "7" * 5000
#: Texts that `str.isdigit`, `int`, `float` or `\d` take for numbers, and more digits than `int` reads.
ODD = (
    "²",
    "-²",
    "٣",
    "١.٥",
    "１２",
    "٣ MB",
    "1_0",
    MANY,
    f"-{MANY}",
    f"{MANY} h",
    f"{MANY}.5",
    f"1.{MANY}",
    f"1e{MANY}",
)
#: The numbers that they would be.
TAKEN = (2, -2, 3, 1.5, 12, 3 * 1024, 10)


def numbers_of(text: str) -> dict[str, Any]:
    """The numbers among the attributes of a job; none where the text is refused."""
    try:
        drafts = read(text).clusters
    except DescriptionError:
        return {}
    return {name: value for draft in drafts for name, value in draft.attributes.items() if type(value) in (int, float)}


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_command_takes_none_for_a_number(name: str) -> None:
    for head in (PLAIN, MPI):
        usual = numbers_of(f"{head}queue\n")
        for odd in ("²", "٣", "٣ MB", "1_0", MANY, f"{MANY} h"):
            found = numbers_of(f"{head}{name} = {odd}\nqueue\n")
            taken = {key: value for key, value in found.items() if usual.get(key) != value and value in TAKEN}
            taken.pop("JobMaxRetries", None)  # `success_exit_code` and `retry_until` set it to 2
            taken.pop("JobUniverse", None)  # `container_image` sets it
            assert not taken, (name, odd[:20])


@pytest.mark.parametrize(
    "line",
    [
        "queue @",
        "queue x@",
        "queue x@ in (a b)",
        "queue @ x in (a b)",
        "queue x in [@:@:@] (a b)",
        "x = $RANDOM_INTEGER(@,@9)\narguments = $(x)\nqueue",
        "arguments = $RANDOM_INTEGER(1,9,@)\nqueue",
        "y = 1\narguments = $INT(y,%@d)\nqueue",
        "y = 1\narguments = $REAL(y,%.@f)\nqueue",
        "y = 1\narguments = $STRING(y,%@s)\nqueue",
        "y = @\narguments = $INT(y) $REAL(y)\nqueue",
        "y = abc\narguments = $SUBSTR(y,@,@)\nqueue",
        "arguments = $CHOICE(@,a,b)\nqueue",
        "if version >= @.@\nendif\nqueue",
        "if version >= 8.@.@\nendif\nqueue",
        "if @\nendif\nqueue",
        "a.exit_codes_ok = @\nexecutable = a=/bin/true | b=/bin/cat\nqueue",
        "executable = a=/bin/true b=/bin/cat\npipe = a > /dev/fd/@ /dev/fd/@ > b\nqueue",
        "executable = a=/bin/true @> b | b=/bin/cat @>&@\nqueue",
        "universe = parallel\nmachine_count = @\nqueue",
    ],
)
@pytest.mark.parametrize("odd", ODD, ids=[odd[:8] for odd in ODD])
def test_a_statement_reads_or_refuses_them(line: str, odd: str) -> None:
    numbers_of(f"{PLAIN}{line.replace('@', odd)}\n")


def test_they_are_refused_in_the_words_of_the_command() -> None:
    def said(text: str) -> str:
        return refusal(text).diagnostics[0].message

    pipe = "executable = a=/bin/true b=/bin/cat\n"
    assert "expected exit codes from 0 to 255" in said(f"{pipe}pipe = a | b\na.exit_codes_ok = ²\nqueue\n")
    assert "'/dev/fd/²' is no end of a pipe" in said(f"{pipe}pipe = a > /dev/fd/² - > b\nqueue\n")
    assert "expected a number of machines" in said(
        "universe = parallel\nexecutable = /bin/a\nmachine_count = ²\nqueue\n"
    )
    assert "expected a signal" in said(f"{PLAIN}kill_sig = ²\nqueue\n")
    assert "expected a number of processes" in said(f"{PLAIN}queue ²\n")
    assert "expected a version" in said(f"{PLAIN}cuda_version = {MANY}\nqueue\n")


def test_a_refused_number_of_machines_is_one_error() -> None:
    found = refusal("universe = parallel\nexecutable = /bin/a\nmachine_count = many\nqueue\n").diagnostics
    assert [one.message for one in found] == ["expected a number of machines for 'machine_count', not 'many'"]
    found = refusal("universe = parallel\nexecutable = /bin/a\nMY.MaxHosts = 1 + X\nqueue\n").diagnostics
    assert "a parallel job needs a number of machines" in [one.message for one in found]
