"""Reasons against checkpoints in a program's file, on programs that are really built and on bytes that are not."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pool.checkpoint.build import compiler
from pool.jobs.checkpoint_precheck import interpreter_of, known_as, libraries, network_hints, program_trouble


def built(place: Path, *options: str) -> bytes:
    (place / "a.c").write_text("int main(void) { return 0; }\n")
    subprocess.run([*compiler().split(), *options, "-o", place / "a", place / "a.c"], check=True)
    return (place / "a").read_bytes()


def test_an_ordinary_program_has_nothing_against_it(tmp_path: Path) -> None:
    data = built(tmp_path)
    assert program_trouble(data, 0o755) == []
    assert any(name.startswith("libc.so") for name in libraries(data))
    python = Path(sys.executable).resolve().read_bytes()
    assert program_trouble(python, 0o755) == []


def test_a_static_one_has_no_libraries_and_nothing_against_it(tmp_path: Path) -> None:
    data = built(tmp_path, "-static")
    assert (program_trouble(data, 0o755), libraries(data)) == ([], [])


def test_what_a_program_is_for(tmp_path: Path) -> None:
    data = bytearray(built(tmp_path))
    assert program_trouble(bytes(data), 0o4755) == ["it is set to run as another user, which a job may not"]
    other = bytearray(data)
    struct.pack_into("<H", other, 18, 183)
    assert program_trouble(bytes(other), 0o755) == ["it is a program for another processor than x86-64"]
    data[4] = 1
    assert program_trouble(bytes(data), 0o755) == ["it is a 32-bit program"]


def test_libraries_whose_state_is_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "l.c").write_text("int f(void) { return 0; }\n")
    library = tmp_path / "libcuda.so.1"
    subprocess.run(
        [*compiler().split(), "-shared", "-fPIC", f"-Wl,-soname,{library.name}", "-o", library, tmp_path / "l.c"],
        check=True,
    )
    data = built(tmp_path, "-Wl,--no-as-needed", str(library))
    said = "what it keeps on a GPU cannot be saved (it uses libcuda.so.1)"
    assert program_trouble(data, 0o755) == [said]


def test_scripts_name_their_interpreters() -> None:
    assert interpreter_of(b"#!/usr/bin/env python3\nprint()\n") == ["/usr/bin/env", "python3"]
    assert interpreter_of(b"#! /bin/sh -e\n") == ["/bin/sh", "-e"]
    assert interpreter_of(b"print()\n") == []


@given(st.binary(max_size=300), st.data())
def test_no_bytes_do_harm(tail: bytes, data: st.DataObject) -> None:
    head = b"\x7fELF\x02\x01" + bytes(12) + b"\x3e\x00"
    program_trouble(data.draw(st.sampled_from([tail, head + tail])), 0o755)


SERVER = """
#include <sys/socket.h>
int main(void) { return listen(socket(AF_INET, SOCK_STREAM, 0), 5) || accept(3, 0, 0); }
"""


def test_what_may_work_over_the_network(tmp_path: Path) -> None:
    assert network_hints("a", built(tmp_path)) == []
    (tmp_path / "s.c").write_text(SERVER)
    subprocess.run([*compiler().split(), "-o", tmp_path / "s", tmp_path / "s.c"], check=True)
    assert network_hints("s", (tmp_path / "s").read_bytes()) == ["it can listen at a port"]
    assert network_hints("redis-server", b"") == ["redis-server works over the network"]
    script = b"import os\nfrom mpi4py import MPI\nimport raytracer\n# import flask\n  import torch.distributed as d\n"
    assert network_hints("job.py", script) == ["it imports mpi4py", "it imports torch.distributed"]


def test_scripts_are_known_by_their_own_name() -> None:
    assert known_as("sim", "/home/a", ["in"]) == "/home/a/sim"
    assert known_as("/bin/python3.11", "/home/a", ["-u", "b/../run.py", "x"]) == "/bin/python3.11 /home/a/run.py"
    assert known_as("/bin/sh", "/home/a", []) == "/bin/sh"
