"""Reasons why a program cannot be checkpointed, as far as they are known before it runs (C7).

They come from the bytes of its file; nothing else is read and nothing is run. The keeper sees which files a program
opens when it runs; this module sees how it was built. A script is judged by its interpreter, which `interpreter_of`
names.
"""

from __future__ import annotations

import os
import re
import stat
import struct
from collections.abc import Iterator, Sequence

#: The processors that the keeper knows, by their number in an ELF file.
PROCESSORS = {62: "x86-64"}
#: Bytes at the beginning of a script in which its interpreter is named.
FIRST_LINE = 256
#: Beginnings of libraries' names, and what of a program that uses them cannot be saved.
_OUTSIDE = {
    "libcuda.so": "what it keeps on a GPU",
    "libcudart.so": "what it keeps on a GPU",
    "libamdhip64.so": "what it keeps on a GPU",
    "libOpenCL.so": "what it keeps on a GPU",
    "libze_loader.so": "what it keeps on a GPU",
    "libibverbs.so": "its connections over InfiniBand",
    "libpsm2.so": "its connections over Omni-Path",
    "libmpi.so": "its connections to processes on other machines",
}
_LOAD, _DYNAMIC = 1, 2
_NEEDED, _STRTAB, _RPATH, _RUNPATH = 1, 5, 15, 29
#: Programs that are known to listen on the network, or to connect over it, by their names.
_ON_THE_NETWORK = re.compile(
    r"(redis-server|postgres|mysqld|mariadbd|mongod|memcached|nginx|apache2|httpd|etcd|jupyter(-\w+)?|gunicorn|uvicorn"
    r"|dask(-\w+)?|ray|mpirun|mpiexec|orterun|torchrun)$"
)
#: The modules that scripts import to do so. Pickled calls and tests import many others; only modules for the network
#: count.
_IMPORTS = re.compile(
    rb"^[ \t]*(?:from|import)[ \t]+((?:mpi4py|socketserver|xmlrpc\.server|http\.server|wsgiref|flask|fastapi"
    rb"|uvicorn|tornado|aiohttp|dask\.distributed|distributed|ray|zmq|grpc|torch\.distributed))\b",
    re.MULTILINE,
)
#: Programs that run others, which are known by their first argument that is a file.
_INTERPRETER = re.compile(r"(python|perl|ruby|Rscript|node|java|bash|sh|dash|julia|php|octave|luajit|lua)[0-9.]*$")


def program_trouble(data: bytes, mode: int) -> list[str]:
    """Why a program could not be saved, a line each; empty where nothing speaks against it.

    Args:
        data: its file.
        mode: the permission bits of the file.
    """
    found: list[str] = []
    if mode & (stat.S_ISUID | stat.S_ISGID):
        found.append("it is set to run as another user, which a job may not")
    if data[:4] != b"\x7fELF" or len(data) < 64:
        return found
    if data[4] != 2:
        return [*found, "it is a 32-bit program"]
    processor = struct.unpack_from("<H", data, 18)[0] if data[5] == 1 else None
    if processor not in PROCESSORS:
        return [*found, f"it is a program for another processor than {', '.join(PROCESSORS.values())}"]
    for library in libraries(data):
        for beginning, what in _OUTSIDE.items():
            if library.startswith(beginning):
                found.append(f"{what} cannot be saved (it uses {library})")
    return list(dict.fromkeys(found))


def network_hints(name: str, data: bytes) -> list[str]:
    """Why a program may have something open on the network, which cannot be saved, a line each.

    Args:
        name: the last part of its path.
        data: its file, or the beginning of it.
    """
    if _ON_THE_NETWORK.match(name):
        return [f"{name} works over the network"]
    if data[:4] == b"\x7fELF":
        return ["it can listen at a port"] if _imports_listen(data) else []
    found = {match.decode() for match in _IMPORTS.findall(data)}
    return [f"it imports {module}" for module in sorted(found)]


def _imports_listen(data: bytes) -> bool:
    """A program that is linked dynamically names what it calls."""
    return b"\0listen\0" in data and (b"\0accept\0" in data or b"\0accept4\0" in data)


def known_as(program: str, directory: str, arguments: Sequence[str]) -> str:
    """By which name a program's runs are remembered: its path, and of an interpreter the script's with it."""
    path = os.path.normpath(os.path.join(directory, program))
    if not _INTERPRETER.match(os.path.basename(path)):
        return path
    script = next((word for word in arguments if not word.startswith("-")), "")
    return f"{path} {os.path.normpath(os.path.join(directory, script))}" if script else path


def interpreter_of(data: bytes) -> list[str]:
    """The words of a script's first line: the interpreter and what it is given; empty for what is no script."""
    if data[:2] != b"#!":
        return []
    return data[2:FIRST_LINE].partition(b"\n")[0].decode(errors="surrogateescape").split()


def libraries(data: bytes) -> list[str]:
    """The libraries that a 64-bit program names (DT_NEEDED); none for one that is linked statically, or damaged."""
    try:
        return list(_dynamic_texts(data, (_NEEDED,)))
    except (struct.error, IndexError, ValueError):
        return []


def library_folders(data: bytes) -> list[str]:
    """The directories in which a 64-bit program looks for its libraries first (DT_RUNPATH, DT_RPATH)."""
    try:
        return [folder for text in _dynamic_texts(data, (_RUNPATH, _RPATH)) for folder in text.split(":") if folder]
    except (struct.error, IndexError, ValueError):
        return []


def _dynamic_texts(data: bytes, wanted: Sequence[int]) -> Iterator[str]:
    """The texts of a program's dynamic section that have one of these tags."""
    offset, size, count = struct.unpack_from("<Q", data, 32)[0], *struct.unpack_from("<HH", data, 54)
    segments = [struct.unpack_from("<IIQQQQ", data, offset + number * size) for number in range(count)]
    entries: list[tuple[int, int]] = []
    for kind, _, at, _, _, length in segments:
        if kind == _DYNAMIC:
            entries += struct.iter_unpack("<qQ", data[at : at + length - length % 16])
    tables = [value for tag, value in entries if tag == _STRTAB]
    for kind, _, at, address, _, length in segments:
        if tables and kind == _LOAD and address <= tables[0] < address + length:
            strings = at + tables[0] - address
            for tag, value in entries:
                if tag in wanted:
                    end = data.index(b"\0", strings + value) if value < length else strings + value
                    yield data[strings + value : end].decode(errors="replace")
