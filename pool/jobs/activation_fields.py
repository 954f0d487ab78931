"""One table of the values that each field of a start may have, checked where a start comes in from another node.

A submit side that was broken into, or is somebody's who means harm, sends what it likes. The execute machine joins
names out of a start to paths of its own, so that a name must be one name, and a path must say where it begins.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from pool.errors import PoolError
from pool.jobs.huge_pages import WISHES
from pool.jobs.mpi import FAMILIES
from pool.jobs.network import MODES as NETWORKS
from pool.jobs.pipes.model import BUFFER, MOST_PIPES, MOST_PROCESSES, ON_FAILURE

#: Items of a list of names, and characters of one text: more than any command line or list of files may have.
MOST, LONGEST = 1 << 20, 1 << 21
_RANKS = re.compile(r"([0-9]{1,4}x[0-9]{1,5}(,[0-9]{1,4}x[0-9]{1,5}){0,9999})?")
_DIGEST = re.compile(r"[0-9a-f]{64}")


class WrongStart(PoolError):
    """A field of a start is not what it may be."""


Fits = Callable[[Any], bool]


def is_text(value: Any) -> bool:
    """A text that can be an argument or a path: without the byte 0."""
    return isinstance(value, str) and len(value) <= LONGEST and "\0" not in value


def is_name(value: Any) -> bool:
    """One name, of a file or a process: no path."""
    return is_text(value) and 0 < len(value) <= 255 and "/" not in value and value not in (".", "..")


def is_program(value: Any) -> bool:
    """A path whose last part is a name."""
    return is_text(value) and is_name(value.rpartition("/")[2])


def is_directory(value: Any) -> bool:
    """An absolute path."""
    return is_text(value) and value.startswith("/")


def is_number(low: float, high: float, kinds: tuple[type, ...] = (int,)) -> Fits:
    """A number from `low` to `high`."""

    def fits(value: Any) -> bool:
        number = isinstance(value, kinds) and not isinstance(value, bool)
        return number and math.isfinite(value) and low <= value <= high

    return fits


def is_list(inner: Fits, most: int = MOST) -> Fits:
    return lambda value: isinstance(value, (list, tuple)) and len(value) <= most and all(map(inner, value))


def is_tuple(*inner: Fits) -> Fits:
    def fits(value: Any) -> bool:
        return is_list(lambda one: True)(value) and len(value) == len(inner) and all(map(_fits, inner, value))

    return fits


def is_mapping(key: Fits, inner: Fits) -> Fits:
    return lambda value: isinstance(value, Mapping) and all(key(one) and inner(value[one]) for one in value)


def or_none(inner: Fits) -> Fits:
    return lambda value: value is None or inner(value)


def _fits(inner: Fits, value: Any) -> bool:
    return inner(value)


def _truth(value: Any) -> bool:
    return isinstance(value, bool)


def _variable(value: Any) -> bool:
    return is_text(value) and value != "" and "=" not in value


def _record(table: Mapping[str, Fits], *needed: str) -> Fits:
    """A mapping whose every key has a row in a table."""

    def fits(value: Any) -> bool:
        known = isinstance(value, Mapping) and all(name in value for name in needed)
        return known and all(name in table and table[name](inner) for name, inner in value.items())

    return fits


_id = is_number(0, 2**53)
_count = is_number(0, 2**31)
_signal = is_number(1, 64)

PROCESS: dict[str, Fits] = {
    "name": is_name,
    "cmd": is_program,
    "arguments": is_list(is_text),
    "iwd": is_directory,
    "stdin": is_text,
    "stdout": is_text,
    "stderr": is_text,
    "append_stdout": _truth,
    "append_stderr": _truth,
    "errors_to_stdout": _truth,
    "codes_ok": or_none(is_list(is_number(0, 255), 256)),
    "short_reads": _truth,
    "carried": _truth,
    "inputs": is_list(is_text),
    "environment": is_text,
}
PIPE: dict[str, Fits] = {"writer": is_name, "reader": is_name, "writer_file": is_text, "reader_file": is_text}

#: Every field of an `Activation`, as it travels.
FIELDS: dict[str, Fits] = {
    "job": is_tuple(_id, _id),
    "run": _id,
    "owner": is_text,
    "mode": lambda value: value in ("shared", "remote", "transfer"),
    "executable": lambda value: value == "" or (is_program(value) and value.startswith("/")),
    "digest": or_none(lambda value: isinstance(value, str) and _DIGEST.fullmatch(value) is not None),
    "argv": is_list(is_text),
    "env": is_mapping(_variable, is_text),
    "iwd": is_directory,
    "carries_executable": _truth,
    "stdin": is_program,
    "stdout": is_text,
    "stderr": is_text,
    "inputs": is_list(is_text),
    "outputs": or_none(is_list(is_text)),
    "keeps_paths": _truth,
    "image_source": is_text,
    "image_program": lambda value: value in ("", "alone", "behind"),
    "image": lambda value: value == "" or is_name(value) or (is_program(value) and value.startswith("/")),
    "manifest": lambda value: value == "" or is_name(value),
    "remaps": is_mapping(is_text, is_text),
    "soft_signal": _signal,
    "not_before": is_number(0, 2**31, (int, float)),
    "most_input": or_none(is_number(0, 2**53)),
    "most_output": or_none(is_number(0, 2**53)),
    "grace": is_number(0, 2**31, (int, float)),
    "core_limit": or_none(is_number(-1, 2**63 - 1)),
    "stack_limit": or_none(is_number(1, 2**63 - 1)),
    "nice": is_number(0, 19),
    "on_failure_too": _truth,
    "network": _truth,
    "reset_connections": _truth,
    "huge_pages": lambda value: value in ("", *WISHES),
    "begins_in": lambda value: value == "" or is_directory(value),
    "append_output": _truth,
    "checkpoint_code": or_none(is_number(0, 255)),
    "checkpoint_files": or_none(is_list(is_text)),
    "checkpoint_signal": or_none(_signal),
    "checkpoint": or_none(_id),
    "checkpoint_from": or_none(is_tuple(is_text, is_text)),
    "processes": is_list(_record(PROCESS, "name", "cmd"), MOST_PROCESSES),
    "pipes": is_list(_record(PIPE, "writer", "reader"), MOST_PIPES),
    "on_process_failure": lambda value: value in ON_FAILURE,
    "pipe_buffer": is_number(0, max(BUFFER, 2**53)),
    "gang": is_text,
    "part": _count,
    "parts": is_number(1, 2**31),
    "mpi": lambda value: value in ("", *FAMILIES),
    "mpirun": lambda value: value == "" or (is_program(value) and value.startswith("/")),
    "pmix_library": lambda value: value == "" or (is_program(value) and value.startswith("/")),
    "ranks": lambda value: isinstance(value, str) and _RANKS.fullmatch(value) is not None,
    "application": _count,
    "job_network": lambda value: value in ("", *NETWORKS),
    "crossings": is_list(is_tuple(_count, _count, _count), MOST_PIPES),
}


def check(wire: Any) -> dict[str, Any]:
    """A start as it came, each field looked at; fields that are not known here are left alone.

    Raises:
        WrongStart: one is not what it may be; says which.
    """
    if not isinstance(wire, dict):
        raise WrongStart("the start of a job is not a mapping")
    for name, value in wire.items():
        fits = FIELDS.get(name)
        if fits is not None and not fits(value):
            raise WrongStart(f"refused to start a job: its {name} is {_shown(name, value)}")
    return wire


def check_program(executable: str, image: str, image_program: str) -> None:
    """Refuse a start without an executable, unless the image's own program runs alone.

    Raises:
        WrongStart: there is none.
    """
    if not executable and not (image and image_program == "alone"):
        raise WrongStart("refused to start a job: its executable is '', and no image brings a program")


def _shown(name: str, value: Any) -> str:
    """The fault of a value, in as few words as possible."""
    table = {"processes": PROCESS, "pipes": PIPE}.get(name)
    for one in value if table is not None and isinstance(value, (list, tuple)) else ():
        for inner, what in one.items() if isinstance(one, Mapping) else ():
            if table is not None and inner in table and not table[inner](what):
                return f"wrong: {inner} is {what!r:.80}"
    return f"{value!r:.80}"
