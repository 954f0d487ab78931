"""Contents on their way into memory: given to it by userfaultfd where the kernel has that, written where not."""

from __future__ import annotations

import subprocess
from pathlib import Path

import psutil
import pytest

from pool.checkpoint import HERE
from pool.checkpoint.build import compiler
from tests.checkpoint.conftest import Compile
from tests.checkpoint.test_checkpoints import lines, saved, undisturbed
from tests.checkpoint.test_lacking import USERFAULTFD, lacking
from tests.starter.support import opened, soon, spec, until


def areas(keeper: int) -> list[tuple[str, ...]]:
    """Range, permissions, offset and name of each area of a keeper's only job, with the kernel's flags of it."""
    (job,) = psutil.Process(keeper).children()
    found: list[tuple[str, ...]] = []
    area: tuple[str, ...] = ()
    for line in Path(f"/proc/{job.pid}/smaps").read_text().splitlines():
        words = line.split()
        if "-" in words[0]:
            area = (words[0], words[1], words[2], *words[5:])
        elif words[0] == "VmFlags:":
            found.append((*area, *sorted(words[1:])))
    return found


async def test_memory_of_every_kind_is_as_it_was(
    tmp_path: Path, keeper_program: Path, scratch: Path, compiled: Compile
) -> None:
    """Contents and areas, with all their flags, by both ways: none is split, or bears a mark of how it was filled."""
    program = compiled("areas", "-static")
    wanted = spec(scratch, program, "wait", program)
    seen = []
    image = tmp_path / "image"
    for keeper_of_it in (keeper_program, lacking(tmp_path, keeper_program, USERFAULTFD)):
        async with opened(tmp_path, keeper_of_it) as keepers:
            if not keepers.abilities.checkpoint:
                pytest.skip("needs the ability checkpoint")
            if not image.exists():
                keeper = await soon(keepers.start(wanted))
                await until(lambda: lines(scratch) == 1)
                before = areas(keeper.pid)
                await saved(keepers, keeper, image)
            keeper = await soon(keepers.start(wanted, image=image))
            seen.append(areas(keeper.pid))
            (scratch / "go").touch()
            assert (await soon(keeper.ended)).code == 0
            await keeper.forget()
            assert (scratch / "out").read_text() == undisturbed(scratch, program, program)
            (scratch / "go").unlink()
    assert seen[0] == seen[1]
    assert {area[:3] for area in seen[0]} == {area[:3] for area in before}
    assert not any("um" in area for area in seen[0])


DRIVER = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "image/image.h"
static int file, cut = 1;

/* The moment between: it is there when it is asked for, and not when it is looked at. */
int madvise(void *at, size_t size, int advice)
{
    int done = (int)syscall(SYS_madvise, at, size, advice);
    return cut && ftruncate(file, 0) < 0 ? -1 : done;
}

int main(int argc, char **argv)
{
    static char buffer[CHUNK];
    struct image image = {.raw = NULL};
    struct image_reader r = {.image = &image};
    struct chunk chunk = {.place = 100, .size = CHUNK - 100};
    file = open(argv[argc - 1], O_RDWR);
    image.chunks = (struct table){.rows = &chunk, .count = 1};
    memset(r.pages, 0xff, sizeof r.pages);
    r.pages[0] = file;
    r.sizes[0] = CHUNK;
    if (pread(file, buffer, CHUNK, 0) != (ssize_t)CHUNK)
        return 2;
    chunk.sum = checksum(buffer + chunk.place, chunk.size);
    char *whole = malloc(CHUNK);
    memcpy(whole, buffer, CHUNK);
    chunks_map(&r);
    const char *gone = chunk_look(&r, 0, buffer);
    printf("%d %d\n", gone == NULL, errno == EBADMSG);
    cut = 0;
    gone = chunk_look(&r, 0, buffer);
    printf("%d %d\n", gone == NULL, errno == EBADMSG);
    if (pwrite(file, whole, CHUNK, 0) != (ssize_t)CHUNK)
        return 3;
    const char *there = chunk_look(&r, 0, buffer);
    printf("%d %d\n", there && there != buffer, there && memcmp(there, whole + chunk.place, chunk.size) == 0);
    if (pwrite(file, "x", 1, 5000) != 1)
        return 4;
    gone = chunk_look(&r, 0, buffer);
    printf("%d %d\n", gone == NULL, errno == EBADMSG);
    return 0;
}
"""


def test_a_file_that_is_cut_while_it_is_looked_at(tmp_path: Path) -> None:
    """A signal that ends a process, where it is mapped; here it is damage, found before anything is done with it."""
    (tmp_path / "driver.c").write_text(DRIVER)
    (tmp_path / "pages").write_bytes(bytes(range(1, 129)) * 8192)
    command = [*compiler().split(), "-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{HERE}", "-o"]
    image = HERE / "image"
    command += map(str, [tmp_path / "driver", tmp_path / "driver.c", image / "reader.c", image / "image.c"])
    subprocess.run(command, check=True)
    done = subprocess.run([tmp_path / "driver", tmp_path / "pages"], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1"] * 8
