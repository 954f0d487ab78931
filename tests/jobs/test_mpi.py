"""MPI jobs as data: the family of a program, the layout of ranks, and the tree of nodes."""

from __future__ import annotations

import fnmatch
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.classad import ClassAd
from pool.errors import PoolError
from pool.jobs import mpi
from pool.jobs.pipes.model import DESCRIPTOR


def program(*needed: str, folders: str = "") -> bytes:
    """The least of a 64-bit program that names libraries, and where it looks for them."""
    strings = b"\0" + b"".join(name.encode() + b"\0" for name in (*needed, folders))
    offsets, at = [], 1
    for name in (*needed, folders):
        offsets.append(at)
        at += len(name.encode()) + 1
    rows = [(5, 4096), *((1, offset) for offset in offsets[:-1]), *([(29, offsets[-1])] if folders else []), (0, 0)]
    dynamic = b"".join(struct.pack("<qQ", *row) for row in rows)
    head = bytearray(64)
    head[:6] = b"\x7fELF\x02\x01"
    struct.pack_into("<Q", head, 32, 64)
    struct.pack_into("<HH", head, 54, 56, 2)
    body = 64 + 2 * 56
    load = struct.pack("<IIQQQQQQ", 1, 4, body, 4096, 0, len(strings), len(strings), 0)
    moving = struct.pack("<IIQQQQQQ", 2, 4, body + len(strings), 0, 0, len(dynamic), len(dynamic), 0)
    return bytes(head) + load + moving + strings + dynamic


class Disk(dict[str, bytes]):
    """Files by their paths."""

    def read(self, path: str) -> bytes:
        if path not in self:
            raise FileNotFoundError(2, "No such file or directory", path)
        return self[path]

    def matching(self, pattern: str) -> list[str]:
        return sorted(path for path in self if fnmatch.fnmatch(path, pattern))

    def family(self, path: str) -> str:
        return mpi.family_of(path, self.read, self.matching)


@pytest.mark.parametrize(
    ("library", "family"),
    [
        ("libmpi.so.12", "mpich"),
        ("libmpich.so.12", "mpich"),
        ("libmpifort.so.12", "mpich"),
        ("libmpi.so.40", "openmpi"),
        ("libmpi_mpifh.so.40", "openmpi"),
        ("libmpi_cxx.so.40", "openmpi"),
    ],
)
def test_a_family_is_seen_in_the_names_of_libraries(library: str, family: str) -> None:
    assert Disk({"/a": program("libm.so.6", library, "libc.so.6")}).family("/a") == family


@pytest.mark.parametrize(
    "data",
    [program("libc.so.6"), program("libmpi_abi.so.1"), b"#!/bin/sh\n", b"", b"\x7fELF\x02\x01"],
)
def test_no_family_is_guessed(data: bytes) -> None:
    with pytest.raises(mpi.NoFamily, match="names no MPI library") as told:
        Disk({"/a": data}).family("/a")
    assert "mpi = none" in told.value.hint


def test_a_program_that_is_not_there() -> None:
    with pytest.raises(mpi.NoFamily, match="cannot read /a: No such file"):
        Disk().family("/a")


PACKAGES = "/venv/lib/python3.11/site-packages"


@pytest.mark.parametrize("first", [b"#!/venv/bin/python3\n", b"#!/venv/bin/python\n"])
def test_python_is_what_its_mpi4py_is_linked_with(first: bytes) -> None:
    disk = Disk({"/venv/bin/python3": program("libc.so.6"), "/a.py": first})
    with pytest.raises(mpi.NoFamily, match="Python of /venv has no package mpi4py"):
        disk.family("/a.py")
    disk[f"{PACKAGES}/mpi4py/MPI.cpython-311.so"] = program("libmpi.so.40")
    assert disk.family("/a.py") == disk.family("/venv/bin/python3") == "openmpi"
    disk[f"{PACKAGES}/mpi4py/MPI.mpich.cpython-311.so"] = program("libmpi.so.12")
    with pytest.raises(mpi.NoFamily, match="mpi4py for both families"):
        disk.family("/a.py")
    disk["/venv/lib/libmpi.so.12"] = b""
    assert disk.family("/a.py") == "mpich"


def test_a_script_of_the_systems_python() -> None:
    disk = Disk({"/a.py": b"#!/usr/bin/env python3\n", "/usr/bin/python3": program("libc.so.6")})
    disk["/usr/lib/python3/dist-packages/mpi4py/MPI.so"] = program("libmpi.so.40")
    assert disk.family("/a.py") == "openmpi"


def test_mpirun_is_beside_the_library_that_is_named() -> None:
    disk = Disk({"/a": program("libmpi.so.40", folders="$ORIGIN/lib:/opt/ompi/lib"), "/opt/ompi/bin/mpirun": b""})
    assert mpi.mpirun_of("/a", disk.read, disk.matching) == "/opt/ompi/bin/mpirun"
    del disk["/opt/ompi/bin/mpirun"]
    assert mpi.mpirun_of("/a", disk.read, disk.matching) == mpi.mpirun_of("/none", disk.read, disk.matching) == ""


@pytest.mark.parametrize(
    ("files", "folders", "library"),
    [
        ([], "", None),
        (["/usr/lib/x86_64-linux-gnu/libpmix.so.2"], "", ""),
        (["/usr/lib64/libpmix.so.2"], "/usr/lib64/openmpi/lib", ""),
        (["/opt/ompi/lib/libpmix.so.2", "/usr/lib64/libpmix.so.2"], "/opt/ompi/lib", "/opt/ompi/lib/libpmix.so.2"),
        (["/opt/ompi/lib/openmpi/libpmix.so.2"], "/opt/ompi/lib", "/opt/ompi/lib/openmpi/libpmix.so.2"),
        (["/opt/ompi/lib/libmpi.so.40", "/usr/lib64/libpmix.so.2"], "/opt/ompi/lib", None),
        (["/opt/other/lib/libfoo.so", "/usr/lib64/libpmix.so.2"], "/opt/other/lib", ""),
        (["/usr/lib64/libpmix.so.2"], "$ORIGIN/lib", ""),
    ],
)
def test_the_library_of_pmix_is_that_of_the_programs_own_mpi(
    files: list[str], folders: str, library: str | None
) -> None:
    """An Open MPI with a library of its own and none of PMIx has it inside, where only its mpirun serves it."""
    disk = Disk({"/a": program("libmpi.so.40", folders=folders), **dict.fromkeys(files, b"")})
    assert mpi.pmix_library_of("/a", disk.read, disk.matching) == library


def test_the_library_of_pmix_beside_a_python() -> None:
    disk = Disk({"/venv/bin/python3": program("libc.so.6"), "/venv/lib/openmpi/libpmix.so.2": b""})
    disk["/a.py"] = b"#!/venv/bin/python3\n"
    for name in ("/a.py", "/venv/bin/python3"):
        assert mpi.pmix_library_of(name, disk.read, disk.matching) == "/venv/lib/openmpi/libpmix.so.2"


def test_a_layout_joins_alike_nodes() -> None:
    assert mpi.layout_of([(2, 2), (2, 1), (4, 1)]) == "2x3,4x1"
    for kinds in ([(0, 1)], [(4097, 1)], [(4096, 9999)]):
        with pytest.raises(PoolError, match="an MPI job has"):
            mpi.layout_of(kinds)


def test_a_family_of_another_name_is_refused() -> None:
    assert mpi.family_in(ClassAd({})) == ""
    with pytest.raises(PoolError, match="MpiFamily is 'lam'"):
        mpi.family_in(ClassAd({"MpiFamily": "lam"}))


@given(st.integers(1, 400))
def test_the_nodes_are_one_tree(nodes: int) -> None:
    """Each node but the first has one parent, which has it as a child; from each the first is reached."""
    assert [child for node in range(nodes) for child in mpi.children(node, nodes)] == list(range(1, nodes))
    for node in range(1, nodes):
        assert node in mpi.children(mpi.parent(node), nodes)
        assert mpi.parent(node) < node


@given(st.integers(1, 60))
def test_both_sides_of_a_pipe_know_it(nodes: int) -> None:
    """A stream has one writer and one reader, on the two nodes that it joins; a ranker's descriptors are its own."""
    ends: dict[int, list[tuple[int, int, bool]]] = {}
    for node in range(nodes):
        pipes, crossings = mpi.pipes_of(node, nodes)
        used = [file for joint in pipes for file in (joint.writer_file, joint.reader_file) if file]
        assert len(used) == len(set(used)) == len(pipes)
        assert all(file.startswith(DESCRIPTOR) and 3 <= int(file[len(DESCRIPTOR) :]) <= 255 for file in used)
        for index, stream, other in crossings:
            ends.setdefault(stream, []).append((node, other, pipes[index].writer == mpi.RANKER))
    for pair in ends.values():
        (one, to_one, writes), (two, to_two, reads) = pair
        assert (to_one, to_two) == (two, one)
        assert writes is not reads


def test_a_rankers_options_name_its_pipes() -> None:
    words = list(mpi.ranker_options(0, 3, "2x3"))
    assert words == ["--part", "0", "--layout", "2x3", "--down", "10,11", "--down", "12,13"]
    assert list(mpi.ranker_options(2, 3, "2x3"))[4:] == ["--up", "10,11"]
