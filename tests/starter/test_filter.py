"""The system-call filter: what it refuses, what it must not touch, and the door that it closes beside it."""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path

import pytest

from pool.starter.keeper import NativeKeepers
from tests.starter.support import PYTHON, opened, shell, spec, to_end

#: Makes each call whose number it is given, and prints what came of it.
CALLER = """
import ctypes, errno, sys
call = ctypes.CDLL(None, use_errno=True).syscall
for word in sys.argv[1:]:
    name, number, *given = word.split(":")
    ctypes.set_errno(0)
    done = call(int(number), *(ctypes.c_long(int(value, 0)) for value in given), 0, 0, 0)
    print(name, errno.errorcode.get(ctypes.get_errno(), "OK") if done < 0 else "OK")
"""
X86 = os.uname().machine == "x86_64"
#: Each with arguments that the kernel would answer otherwise: with EFAULT, EINVAL, EBADF or success.
REFUSED = (
    "init_module:175 finit_module:313:99 delete_module:176 kexec_load:246 reboot:169:1 swapon:167 swapoff:168 "
    "settimeofday:164:1 clock_settime:227 quotactl:179 quotactl_fd:443 keyctl:250:0 add_key:248 request_key:249 "
    "bpf:321 perf_event_open:298 userfaultfd:323:0 open_by_handle_at:304 fanotify_init:300 syslog:103:10 acct:163:1 "
    "mount:165 umount2:166 pivot_root:155 move_mount:429 open_tree:428:-1 fsopen:430 fsconfig:431 fsmount:432 "
    "fspick:433 mount_setattr:442 setns:308 unshare:272:0x10000000 clone:56:0x10000000 iopl:172 ioperm:173"
)
ABSENT = "io_uring_setup:425:1 io_uring_enter:426 io_uring_register:427 clone3:435"
ALLOWED = "userfaultfd:323:0x80001 getpid:39 unshare:272:0x400 personality:135:0xffffffff eventfd:290 ptrace:101:9999"


def outcomes(scratch: Path) -> dict[str, str]:
    lines = (scratch / "out").read_text().splitlines()
    return {name: outcome for name, _, outcome in (line.partition(" ") for line in lines)}


async def call(keepers: NativeKeepers, scratch: Path, filter: str, *words: str) -> dict[str, str]:
    wanted = spec(scratch, PYTHON, "-c", CALLER, *words, filter=filter, isolation="shared")
    assert (await to_end(keepers, wanted)).code == 0, (scratch / "err").read_text()
    return outcomes(scratch)


async def test_what_no_job_needs_is_refused(best: NativeKeepers, scratch: Path) -> None:
    if not X86 or not best.abilities.filter:
        pytest.skip("needs the ability filter and an x86-64 processor")
    found = await call(best, scratch, "plain", *REFUSED.split())
    assert found == {word.split(":")[0]: "EPERM" for word in REFUSED.split()}
    found = await call(best, scratch, "plain", *ABSENT.split())
    assert found == {word.split(":")[0]: "ENOSYS" for word in ABSENT.split()}


async def test_what_programs_use_is_not(best: NativeKeepers, scratch: Path) -> None:
    if not X86 or not best.abilities.filter:
        pytest.skip("needs the ability filter and an x86-64 processor")
    found = await call(best, scratch, "plain", *ALLOWED.split())
    assert found.pop("ptrace") in ("EIO", "ESRCH")
    assert found.pop("userfaultfd") in ("OK", "EPERM", "ENOSYS")  # the kernel's own setting may close it to users
    assert set(found.values()) == {"OK"}


async def test_namespaces_may_be_allowed(best: NativeKeepers, scratch: Path) -> None:
    if not X86 or not best.abilities.filter:
        pytest.skip("needs the ability filter and an x86-64 processor")
    made = ["unshare:272:0x10000000"]
    assert (await call(best, scratch, "", *made))["unshare"] == (await call(best, scratch, "nested", *made))["unshare"]
    found = await call(best, scratch, "nested", "keyctl:250:0", "bpf:321", "clone3:435", "setns:308:-1")
    assert found == {"keyctl": "EPERM", "bpf": "EPERM", "clone3": "EINVAL", "setns": "EBADF"}


PROGRAMS = {
    "threads": "import threading; t = threading.Thread(target=print); t.start(); t.join()",
    "children": "import subprocess; subprocess.run(['true'], check=True)",
    "pools": "import multiprocessing as m; assert m.get_context('spawn').Pool(1).map(abs, [-1]) == [1]",
    "written code": (
        "import ctypes, mmap; m = mmap.mmap(-1, 4096, prot=7); m.write(bytes([0xb8, 7, 0, 0, 0, 0xc3])); "
        "f = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m))); assert f() == 7"
    ),
    "sockets": "import socket; a, b = socket.socketpair(); s = socket.create_server(('127.0.0.1', 0)); s.getsockname()",
    "shared memory": "from multiprocessing.shared_memory import SharedMemory as S; S(create=True, size=9).unlink()",
    "a tracer": (
        "import ctypes, os, signal; l = ctypes.CDLL(None); p = os.fork()\n"
        "if not p: l.ptrace(0, 0, 0, 0); os.kill(os.getpid(), signal.SIGSTOP); os._exit(3)\n"
        "os.waitpid(p, 0); l.ptrace(7, p, 0, 0); assert os.waitpid(p, 0)[1] >> 8 == 3"
    ),
}


@pytest.mark.parametrize("what", PROGRAMS)
async def test_ordinary_programs_run(best: NativeKeepers, scratch: Path, what: str) -> None:
    if what == "written code" and not X86:
        pytest.skip("needs an x86-64 processor")
    wanted = spec(scratch, PYTHON, "-c", PROGRAMS[what], filter="plain", isolation="shared")
    assert (await to_end(best, wanted)).code == 0, (scratch / "err").read_text()


async def test_abstract_sockets_of_others_are_out_of_reach(best: NativeKeepers, scratch: Path) -> None:
    if not best.abilities.filter or not landlock():
        pytest.skip("needs the ability filter and landlock")
    name = f"\0poolnode-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(name)
        listening.listen()
        reach = f"import socket; socket.socket(socket.AF_UNIX).connect({name!r})"
        own = (
            "import socket; s = socket.socket(socket.AF_UNIX); s.bind('\\0own'); s.listen(); "
            "socket.socket(socket.AF_UNIX).connect('\\0own')"
        )
        kind = {"isolation": "shared"}
        assert (await to_end(best, spec(scratch, PYTHON, "-c", reach, **kind))).code == 0
        assert (await to_end(best, spec(scratch, PYTHON, "-c", reach, filter="plain", **kind))).code == 1
        assert "PermissionError" in (scratch / "err").read_text()
        assert (await to_end(best, spec(scratch, PYTHON, "-c", own, filter="plain", **kind))).code == 0


def landlock() -> bool:
    """Whether this kernel has scopes (version 6 of it)."""
    import ctypes

    version: int = ctypes.CDLL(None).syscall(444, None, 0, 1)
    return version >= 6


async def test_without_process_namespaces_others_cannot_be_traced(place: Path, program: Path, scratch: Path) -> None:
    async with opened(place, program, without=2) as keepers:
        if not X86 or not keepers.abilities.filter:
            pytest.skip("needs the ability filter and an x86-64 processor")
        found = await call(keepers, scratch, "plain", "ptrace:101:9999", "readv:310:1", "getfd:438:-1")
        assert set(found.values()) == {"EPERM"}


async def test_programs_for_32_bits_are_filtered_by_their_own_numbers(best: NativeKeepers, scratch: Path) -> None:
    if not X86 or not best.abilities.filter:
        pytest.skip("needs the ability filter and an x86-64 processor")
    (scratch / "old").write_bytes(old_program([(313, 0), (357, 0), (20, 0)]))  # splice, bpf, getpid
    (scratch / "old").chmod(0o755)
    end = await to_end(best, spec(scratch, str(scratch / "old"), filter="plain"))
    if end.code is None:  # this kernel runs none
        pytest.skip("this kernel runs no 32-bit programs")
    assert end.code == 1  # EPERM of the second


def old_program(calls: list[tuple[int, int]]) -> bytes:
    """A program for 32 bits that makes the second call and exits with its error."""
    number = calls[1][0]
    code = struct.pack("<BI", 0xB8, number) + b"\x31\xdb\x31\xc9\x31\xd2\xcd\x80"  # eax = number; the rest 0; int 0x80
    code += b"\xf7\xd8\x89\xc3" + struct.pack("<BI", 0xB8, 1) + b"\xcd\x80"  # ebx = -eax; exit
    base = 0x08048000
    head = (
        b"\x7fELF\x01\x01\x01"
        + bytes(9)
        + struct.pack("<HHIIIIIHHHHHH", 2, 3, 1, base + 84, 52, 0, 0, 52, 32, 1, 0, 0, 0)
    )
    size = 84 + len(code)
    return head + struct.pack("<8I", 1, 0, base, base, size, size, 5, 4096) + code


async def test_what_the_machine_lacks_is_said(place: Path, program: Path, scratch: Path) -> None:
    async with opened(place, program, without=1024) as keepers:
        assert any(line.startswith("no system call filter") for line in keepers.abilities.reduced)
        assert (await to_end(keepers, shell(scratch, "exit 3", filter="plain"))).code == 3
