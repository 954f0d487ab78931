"""A ranker's report on its ranks, read from a file that the job's user may write; and how it is started."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pool.jobs.activation import Activation, FileMode
from pool.starter.ranks import COPY, STATUS, place_ranker, read_status, remove_shared, shared_directory, status_of

GOOD = "ranker 1\nranks 2 3 8\nstates b.b\nbelow w.\n"


def test_a_status_is_read_as_the_ranker_writes_it() -> None:
    status = status_of(GOOD + "end code 7 rank 3 exited with code 7\n")
    assert status is not None
    assert (status.first, status.size, status.states, status.below) == (2, 8, "b.b", "w.")
    assert status.end == "rank 3 exited with code 7"
    assert not status.singletons


@pytest.mark.parametrize(
    ("states", "words"),
    [
        ("b.b", "ranks 2, 4 wait for rank 3, which has not called MPI_Init"),
        ("bbi", "ranks 2, 3 wait in a barrier for rank 4"),
        ("bbb", "ranks 2, 3, 4 wait for ranks on other machines"),
        ("b..", "rank 2 waits for ranks 3, 4, which have not called MPI_Init"),
        ("iii", ""),
        ("...", "ranks 2, 3, 4 have not called MPI_Init"),
        ("i.f", "rank 3 has not called MPI_Init"),
    ],
)
def test_whom_ranks_wait_for(states: str, words: str) -> None:
    status = status_of(GOOD.replace("b.b", states))
    assert status is not None
    assert status.waits_for() == words


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ranker 2\nranks 0 1 1\nstates .\n",
        GOOD.replace("b.b", "b.bb"),
        GOOD.replace("b.b", "b.q"),
        GOOD.replace("2 3 8", "2 3"),
        GOOD.replace("2 3 8", "-2 3 8"),
        GOOD.replace("2 3 8", "9999999999 3 8"),
        GOOD.replace("w.", "w" * 2000),
        "\0" * 100,
    ],
)
def test_any_other_text_is_nothing(text: str) -> None:
    assert status_of(text) is None


def test_words_of_the_job_cannot_write_on_a_terminal() -> None:
    status = status_of(GOOD + "end code 7 \x1b[31mred\x07\n")
    assert status is not None
    assert status.end == " [31mred "


def test_a_link_in_place_of_the_status_is_not_followed(tmp_path: Path) -> None:
    place_ranker(tmp_path, None)
    assert os.access(tmp_path / COPY, os.X_OK)
    assert read_status(tmp_path, None) is None
    (tmp_path / STATUS).write_text(GOOD)
    assert read_status(tmp_path, None) is not None
    (tmp_path / "other").write_text(GOOD)
    (tmp_path / STATUS).unlink()
    (tmp_path / STATUS).symlink_to("other")
    assert read_status(tmp_path, None) is None
    (tmp_path / STATUS).unlink()
    (tmp_path / STATUS).mkdir()
    assert read_status(tmp_path, None) is None


def part_of_a_job(gang: str) -> Activation:
    return Activation(
        job=(7, 0),
        run=1,
        owner="alice",
        mode=FileMode.SHARED,
        executable="",
        digest=None,
        argv=(),
        env={},
        iwd="/",
        mpi="pmix",
        gang=gang,
        part=1,
    )


def test_shared_memory_that_is_left_of_ranks_is_removed(tmp_path: Path) -> None:
    start = part_of_a_job(str(tmp_path))
    directory = shared_directory(start)
    assert "7.0" not in directory.name, "everybody can list /dev/shm"
    directory.mkdir(mode=0o700)
    (directory / "below").mkdir()
    (directory / "below" / "segment").write_bytes(b"x")
    (directory / "link").symlink_to(tmp_path)
    remove_shared(start, (os.geteuid() + 1, 0))
    assert directory.exists(), "it is another user's"
    remove_shared(start, None)
    assert not directory.exists()
    assert tmp_path.exists()
    directory.symlink_to(tmp_path)
    remove_shared(start, None)
    assert tmp_path.exists(), "a link that has the name is not followed"
    directory.unlink()
