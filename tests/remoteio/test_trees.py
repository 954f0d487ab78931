"""Which directories of the submit machine a job may reach: what it asks for, within what the administrator allows."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from pool.remoteio.frames import Op
from pool.remoteio.trees import BadTree, Tree, granted, outermost, trees_of, wishes_of
from tests.remoteio.support import HomeProcess, JobEnd, Refused

TOP = ["home", "data", "usr", "etc", "proc", "tmp", "var", "opt", ".hidden"]


@pytest.mark.parametrize(
    ("allowed", "wished", "found"),
    [
        ("/", "/home/ann/work", "/home/ann/work"),
        ("/", "/", "/data,/home"),  # all of the submit side but the system, as the job finds the system where it runs
        ("/", "/usr/bin,/etc,/tmp,/var/tmp/x", ""),
        ("/", "/tmp/trial/a,/var/lib/x", "/tmp/trial/a,/var/lib/x"),
        ("/", "/home/ann,/home/ann/bin:ro", "/home/ann,/home/ann/bin:ro"),
        ("/", "/home/ann,/home/ann:ro", "/home/ann"),  # what may be written may be read
        ("/", "/,/home/ann:ro,/home/ann/x", "/data,/home,/home/ann:ro,/home/ann/x"),
        ("/", "/home/ann:ro,/home/ann/work", "/home/ann:ro,/home/ann/work"),
        ("/", "/home/ann/work,/home/ann/worker", "/home/ann/work,/home/ann/worker"),
        ("/home/ann, /data:ro", "/home,/data/x", "/data/x:ro,/home/ann"),
        ("/home:ro /home/ann", "/home/ann/work,/home/bob", "/home/ann/work,/home/bob:ro"),
        ("/home /home/ann/keep:ro", "/home/ann", "/home/ann,/home/ann/keep:ro"),
        ("/", "/data:static", "/data:static"),
        ("/", "/data:static,/data/x:ro", "/data:static,/data/x:ro"),
        ("/", "/data:ro,/data/x:static", "/data:ro,/data/x:static"),
        ("/", "/data,/data/x:static", "/data,/data/x:static"),
        ("/data:ro", "/data/x:static", "/data/x:static"),
        ("/data", "/home/ann", ""),
        ("", "/home/ann", ""),
    ],
)
def test_what_is_granted(allowed: str, wished: str, found: str) -> None:
    assert granted(trees_of(allowed), TOP, wishes_of(wished)) == wishes_of(found)


def test_a_machine_mounts_the_outermost_ones_for_writing_where_any_of_it_may_be_written() -> None:
    trees = wishes_of("/a:ro,/a/b,/c:ro,/c/d:ro,/e")
    assert outermost(trees) == (Tree("/a"), Tree("/c", True), Tree("/e"))
    trees = wishes_of("/a:static,/a/b:ro,/c:static,/c/d:static,/e:static,/e/f")
    assert outermost(trees) == (Tree("/a", True), Tree("/c", True, True), Tree("/e"))


@pytest.mark.parametrize("wrong", ["data", "/data:never", "~/x"])
def test_what_names_no_tree_is_refused(wrong: str) -> None:
    for read in (trees_of, wishes_of):
        with pytest.raises(BadTree):
            read(wrong)


def test_the_administrator_says_nothing_about_static_trees() -> None:
    with pytest.raises(BadTree):
        trees_of("/data:static")


def test_home_tells_which_trees_are_static_and_why_others_are_not(home: HomeProcess, tree: Path, journal: Path) -> None:
    for name in ("still", "mixed/in", "work"):
        (tree / name).mkdir(parents=True)
    wish = f"{tree}/still:static,{tree}/mixed:static,{tree}/mixed/in,{tree}/work"
    job = home.open(tree, journal, trees=wish)
    assert home.answer["static"] == [f"{tree}/still"]
    assert home.answer["not static"] == [[f"{tree}/mixed", "a directory in it is not static"]]
    job.hello()
    assert refusal(job, Op.OPEN, 1, "still/f", os.O_RDWR | os.O_CREAT, 0o644, 0) == errno.EROFS
    assert refusal(job, Op.MKDIR, "still/d", 0o755) == errno.EROFS
    job.close()


def refusal(job: JobEnd, op: Op, *values: object) -> int:
    with pytest.raises(Refused) as found:
        job.ask(op, *values)
    return found.value.errno or 0


def test_home_opens_nothing_that_was_not_granted(home: HomeProcess, tree: Path, journal: Path) -> None:
    """By default the initial directory is worked in, the program's is read, and nothing else is there."""
    for name in ("work", "bin", "secret"):
        (tree / name).mkdir()
        (tree / name / "f").write_text(name)
    (tree / "work/link").symlink_to(tree / "secret")
    job = home.open(tree, journal, writes=[str(tree / "work")], reads=[str(tree / "bin/f")])
    job.hello()
    job.ask(Op.OPEN, 1, "work/f", os.O_RDWR, 0, 0)
    job.ask(Op.OPEN, 2, "bin/f", os.O_RDONLY, 0, 0)
    assert refusal(job, Op.OPEN, 3, "bin/f", os.O_RDWR, 0, 0) == errno.EROFS
    assert refusal(job, Op.UNLINK, "bin/f") == errno.EROFS
    assert refusal(job, Op.OPEN, 3, "secret/f", os.O_RDONLY, 0, 0) == errno.EACCES
    assert refusal(job, Op.OPEN, 3, "work/link/f", os.O_RDONLY, 0, 0) == errno.ESTALE
    job.close()


def test_no_other_directory_is_laid_where_a_tree_is(home: HomeProcess, tree: Path, journal: Path) -> None:
    """Else a job that may write around a read-only tree would choose what that tree is at its next start."""
    (tree / "a/keep").mkdir(parents=True)
    job = home.open(tree, journal, allowed=f"{tree} {tree}/a/keep:ro")
    job.hello()
    assert refusal(job, Op.RENAME, "a/keep", "a/other", 0) == errno.EROFS
    assert refusal(job, Op.RENAME, "a", "b", 0) == errno.EBUSY
    assert refusal(job, Op.OPEN, 1, "a/keep/f", os.O_CREAT | os.O_RDWR, 0o644, 0) == errno.EROFS
    job.ask(Op.MKDIR, "a/more", 0o755, 0)
    job.close()
