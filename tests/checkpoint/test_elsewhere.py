"""Another machine: other libraries, no program, another kernel's code page, a processor that lacks something."""

from __future__ import annotations

import asyncio
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from pool.checkpoint.build import compiler
from pool.starter.keeper import NativeKeepers, StartFailed
from tests.checkpoint.hostile import checksum
from tests.checkpoint.test_checkpoints import lines, saved, undisturbed
from tests.starter.support import opened, soon, spec, until

#: A bit of --without: each vdso is taken for another one.
OTHER_VDSO = 1 << 30

LIBRARY = """
#include <stdlib.h>
static int calls = {start};
static const char *const words[] = {{"one", "two", "three"}};
const char *word(int n) {{ calls++; return words[n % 3]; }}
int called(void) {{ return calls; }}
"""
USER = """
#include <stdio.h>
#include <unistd.h>
const char *word(int); int called(void);
int main(void)
{
    for (int n = 0; n < 40 || access("go", F_OK) != 0; n++) {
        if (n < 40)
            printf("%s %d\\n", word(n), called());
        fflush(stdout);
        usleep(5000);
    }
    return 0;
}
"""
CLOCKS = """
import os, threading, time
def look():
    last = time.monotonic()
    while not os.path.exists("go"):
      for _ in range(100):
        now = time.monotonic()
        assert last <= now < last + 60
        last = now
        assert time.time() > 1e9
threads = [threading.Thread(target=look) for _ in range(3)]
for thread in threads: thread.start()
print("ready", flush=True)
for thread in threads: thread.join()
print("done", flush=True)
"""


def built(scratch: Path, start: int) -> None:
    """A library of that name anew, as another version of a system brings it."""
    compile = [*compiler().split(), "-O1", "-shared", "-fPIC", "-x", "c", "-", "-o", str(scratch / "new.so")]
    subprocess.run(compile, input=LIBRARY.format(start=start).encode(), check=True)
    os.replace(scratch / "new.so", scratch / "libword.so")


def linked(program: Path, scratch: Path) -> None:
    link = [*compiler().split(), "-x", "c", "-", "-o", str(program), "-x", "none", str(scratch / "libword.so")]
    subprocess.run([*link, "-Wl,-rpath,$ORIGIN"], input=USER.encode(), check=True)


async def test_other_libraries_and_no_program(keepers: NativeKeepers, tmp_path: Path, scratch: Path) -> None:
    """The mapped parts of them are in the image when that was asked for, and are not used where the files are the
    same.
    """
    built(scratch, 0)
    program = scratch / "user"
    linked(program, scratch)
    expected = undisturbed_lines(scratch, str(program))
    wanted = spec(scratch, str(program))
    keeper = await soon(keepers.start(wanted))
    await until(lambda: lines(scratch) > 3)
    plain = await soon(keeper.checkpoint(tmp_path / "plain"))
    first = await soon(keeper.checkpoint(tmp_path / "first", carry=True))
    first_image = tmp_path / "first"
    report = await soon(keeper.checkpoint(tmp_path / "carried", stop=True, parent=first_image, carry=True))
    assert plain.bytes + (1 << 20) < min(first.bytes, report.bytes)
    assert (tmp_path / "first" / "carried").samefile(tmp_path / "carried" / "carried")  # not read once more
    await soon(keeper.ended)
    await keeper.forget()
    keeper = await soon(keepers.start(wanted, image=tmp_path / "carried"))
    assert "libword.so\n" in maps_of(keeper.pid)
    await keeper.kill()
    await soon(keeper.ended)
    await keeper.forget()
    built(scratch, 1000)
    with pytest.raises(StartFailed, match=r"libword.so: the job maps it, and it is another file"):
        await soon(keepers.start(wanted, image=tmp_path / "plain"))
    program.unlink()
    keeper = await soon(keepers.start(wanted, image=tmp_path / "carried"))
    await saved(keepers, keeper, tmp_path / "again", stop=True)
    (scratch / "libword.so").unlink()
    keeper = await soon(keepers.start(wanted, image=tmp_path / "again"))
    (scratch / "go").touch()
    assert (await soon(keeper.ended)).code == 0
    await keeper.forget()
    assert (scratch / "out").read_text() == expected


def undisturbed_lines(scratch: Path, program: str) -> str:
    (scratch / "go").touch()
    try:
        return undisturbed(scratch, program)
    finally:
        (scratch / "go").unlink()


def maps_of(keeper: int) -> str:
    """The areas of the first process of a job."""
    first = Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()[0]
    return Path(f"/proc/{first}/maps").read_text()


async def test_another_kernels_code_page(tmp_path: Path, scratch: Path, keeper_program: Path) -> None:
    """Threads that read clocks all the time through it, moved from kernel to kernel, twice."""
    wanted = spec(scratch, sys.executable, "-c", CLOCKS, isolation="shared")
    async with opened(tmp_path, keeper_program, without=OTHER_VDSO) as keepers:
        if not keepers.abilities.checkpoint:
            pytest.skip("needs the ability checkpoint")
        keeper = await soon(keepers.start(wanted))
        await until(lambda: lines(scratch) == 1)
        for number in range(3):
            await saved(keepers, keeper, tmp_path / f"image{number}", stop=number == 1)
            keeper = await soon(keepers.start(wanted, image=tmp_path / f"image{number}"))
            assert maps_of(keeper.pid).count("[vdso]") == 1
            await asyncio.sleep(0.02)
        (scratch / "go").touch()
        assert (await soon(keeper.ended)).code == 0, (scratch / "err").read_text()
        await keeper.forget()
    assert (scratch / "out").read_text() == "ready\ndone\n"


async def test_another_processor(keepers: NativeKeepers, tmp_path: Path, scratch: Path) -> None:
    """A feature that only the machine before had, another architecture, a newer version: named, and the image stays."""
    wanted = spec(scratch, "/bin/sleep", "60")
    keeper = await soon(keepers.start(wanted))
    image = tmp_path / "image"
    await saved(keepers, keeper, image, stop=True)
    meta = (image / "meta").read_bytes()
    body = len(meta) - struct.unpack_from("=Q", meta, 16)[0]
    machine = meta.index(os.uname().release.encode())

    def changed(at: int, layout: str, value: int, *, sums: bool = True) -> None:
        other = bytearray(meta)
        struct.pack_into(layout, other, at, value)
        if sums:
            (fits,) = struct.unpack_from("=Q", meta, 24)
            fits ^= checksum(meta[machine:body]) ^ checksum(bytes(other[machine:body]))
            struct.pack_into("=Q", other, 24, fits)
        (image / "meta").write_bytes(other)

    (had,) = struct.unpack_from("=Q", meta, machine + 64 + 8)
    absent = [bit for bit in (48, 51, 43) if not had >> bit & 1]
    for bit in absent:
        changed(machine + 64 + 8, "=Q", had | 1 << bit)
        with pytest.raises(StartFailed, match=r"processor lacks features of the previous one: (AVX512F|ADX|RTM)"):
            await soon(keepers.start(wanted, image=image))
    changed(8, "=I", 1000, sums=False)
    with pytest.raises(StartFailed, match="it was made by another version"):
        await soon(keepers.start(wanted, image=image))
    changed(12, "=I", 183, sums=False)
    with pytest.raises(StartFailed, match="it was made on another kind of processor"):
        await soon(keepers.start(wanted, image=image))
    (image / "meta").write_bytes(meta)
    keeper = await soon(keepers.start(wanted, image=image))
    await keeper.kill()
    await soon(keeper.ended)
    await keeper.forget()
