"""The limits in a cgroup as the keeper writes them, into a tree of files that only looks like one.

Most machines that tests run on have no version 2 with controllers to give; the code is the keeper's own.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pool.checkpoint import HERE
from pool.checkpoint.build import CannotBuild, compiler

DRIVER = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include "sandbox/sandbox.h"
struct settings settings;
int main(int argc, char **argv)
{
    settings.able = (uint32_t)strtoul(argv[2], NULL, 10);
    int group = open(argv[1], O_RDONLY | O_DIRECTORY);
    struct start s = {.memory = strtoull(argv[3], NULL, 0), .processes = strtoull(argv[4], NULL, 0),
                      .cpus = strtoull(argv[5], NULL, 0)};
    bool watched = cgroup_limit(group, &s);
    printf("%d %llu %d %d\n", watched, (unsigned long long)cgroup_memory_kills(group),
           cgroup_freeze(group, true), cgroup_kill(group));
    return argc != 6;
}
"""
FILES = ("memory.max", "memory.swap.max", "memory.oom.group", "pids.max", "cpu.weight", "cgroup.freeze", "cgroup.kill")
GROUP, MEMORY, COUNT = 128, 256, 2048
NONE = str(2**64 - 1)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("group")
    (directory / "driver.c").write_text(DRIVER)
    try:
        command = [*compiler().split(), "-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{HERE}"]
    except CannotBuild as error:
        pytest.skip(str(error))
    command += ["-o", str(directory / "driver"), str(directory / "driver.c"), str(HERE / "sandbox" / "cgroup.c")]
    subprocess.run(command, check=True)
    return directory / "driver"


def tried(
    driver: Path, tmp_path: Path, able: int, *limits: str, files: tuple[str, ...] = FILES
) -> tuple[str, dict[str, str]]:
    for name in files:
        (tmp_path / name).write_text("")
    (tmp_path / "memory.events").write_text("low 0\nhigh 2\noom 3\noom_kill 4\noom_group_kill 1\n")
    done = subprocess.run([driver, tmp_path, str(able), *limits], capture_output=True, text=True, check=True)
    return done.stdout.strip(), {name: (tmp_path / name).read_text() for name in files}


def test_every_limit_is_written(driver: Path, tmp_path: Path) -> None:
    said, files = tried(driver, tmp_path, GROUP | MEMORY | COUNT, str(1 << 30), "500", "4")
    assert said == "1 4 1 1"
    assert files == {
        "memory.max": str(1 << 30),
        "memory.swap.max": "0",
        "memory.oom.group": "1",
        "pids.max": "500",
        "cpu.weight": "400",
        "cgroup.freeze": "1",
        "cgroup.kill": "1",
    }


def test_no_limit_takes_the_last_jobs_away(driver: Path, tmp_path: Path) -> None:
    _, files = tried(driver, tmp_path, GROUP | MEMORY | COUNT, NONE, NONE, NONE)
    assert (files["memory.max"], files["memory.swap.max"], files["pids.max"]) == ("max", "max", "max")
    assert files["cpu.weight"] == "100"


def test_more_processors_than_weights_go(driver: Path, tmp_path: Path) -> None:
    assert tried(driver, tmp_path, GROUP | COUNT, NONE, "1", "1000")[1]["cpu.weight"] == "10000"
    assert tried(driver, tmp_path, GROUP | COUNT, NONE, "1", "0")[1]["cpu.weight"] == "100"


def test_only_what_the_machine_gives_is_used(driver: Path, tmp_path: Path) -> None:
    said, files = tried(driver, tmp_path, GROUP, str(1 << 30), "500", "4")
    assert said.startswith("0 0 ")
    assert not any(files[name] for name in FILES[:5])
    said, files = tried(driver, tmp_path, GROUP | COUNT, str(1 << 30), "500", "4")
    assert said.startswith("0 ")
    assert (files["memory.max"], files["pids.max"]) == ("", "500")


def test_a_limit_that_is_refused_is_not_called_watched(driver: Path, tmp_path: Path) -> None:
    said, _ = tried(driver, tmp_path, GROUP | MEMORY, "4096", NONE, NONE, files=("cgroup.freeze",))
    assert said.startswith("0 4 1 0")
