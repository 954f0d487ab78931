"""Root's work in a user's directory stays there, however quickly the user swaps the names in it."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pool import safe_directory
from pool.images import ImageError, ImageStore
from pool.safe_directory import NotRegular, NotTheOwners, SafeDirectory, copy_data, open_beneath
from pool.starter import freezing, programs, saving, staging

SOMEBODY = (61235, 61235)
as_root = pytest.mark.skipif(os.getuid() != 0, reason="root's node works in other users' directories")

#: A user who has every name below be a directory or file of his one moment, and a link to root's the next.
SWAPPER = """
import os, sys
os.setgid(61235); os.setuid(61235)
scratch, secret = sys.argv[1:]
def replace(name, make):
    try: os.rename(name, f"{scratch}/.old")
    except OSError: pass
    try: make(name)
    except OSError: pass
os.umask(0)
print(flush=True)
n = 0
while True:
    n += 1
    for name, target in (("d", secret), ("f", f"{secret}/key"), ("d/f", f"{secret}/key")):
        path = f"{scratch}/{name}"
        old = f"{scratch}/.old{n}{name.replace('/', '_')}"
        try: os.rename(path, old)
        except OSError: pass
        try:
            if n % 2: os.symlink(target, path)
            elif name == "d": os.mkdir(path)
            else: open(path, "w").close()
        except OSError: pass
    if n % 64 == 0:
        for left in os.listdir(scratch):
            if left.startswith(".old"):
                try: os.unlink(f"{scratch}/{left}")
                except OSError: pass
"""


@contextlib.contextmanager
def swapping(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """A scratch directory whose owner swaps names all the time, and what only root may read or change."""
    for above in (tmp_path, *tmp_path.parents):
        if above.stat().st_uid == os.getuid() and above != Path("/") and not above.stat().st_mode & 0o001:
            above.chmod(above.stat().st_mode | 0o011)
    scratch, secret = tmp_path / "scratch", tmp_path / "secret"
    scratch.mkdir(0o700)
    os.chown(scratch, *SOMEBODY)
    secret.mkdir(0o755)
    (secret / "key").write_text("SECRET")
    (secret / "key").chmod(0o600)
    command = [sys.executable, "-S", "-E", "-c", SWAPPER, str(scratch), str(secret)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as user:
        assert user.stdout is not None
        user.stdout.readline()
        try:
            yield scratch, secret
        finally:
            user.kill()


def untouched(secret: Path) -> None:
    assert [path.name for path in secret.iterdir()] == ["key"]
    for path, mode in ((secret, 0o755), (secret / "key", 0o600)):
        status = path.stat()
        assert (status.st_uid, stat.S_IMODE(status.st_mode)) == (0, mode)
    assert (secret / "key").read_text() == "SECRET"


def for_a_while(act: Callable[[], None], seconds: float = 0.7) -> int:
    """Do it again and again; how often it came to an end without a refusal."""
    end, done = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        with contextlib.suppress(OSError, staging.StagingError, ImageError):
            act()
            done += 1
    return done


@as_root
def test_nothing_is_written_outside_while_names_are_swapped(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    with swapping(tmp_path) as (scratch, secret), SafeDirectory(scratch, SOMEBODY) as safe:

        def inputs() -> None:
            safe.make_directory("d", 0o777)
            for name in ("d/f", "d/key", "f"):
                fd = safe.create_file(name, 0o666)
                os.write(fd, b"input")
                os.close(fd)

        def others() -> None:
            safe.set_mode_and_time("d", 0o777, 1)
            safe.open_up("d", 0o777)
            safe.make_pipe("d/pipe")
            safe.remove_file("d/key")

        assert for_a_while(inputs) > 0
        for_a_while(others)
        assert for_a_while(lambda: programs.install(program, safe, "d/key")) > 0
        untouched(secret)


@as_root
def test_nothing_of_roots_is_read_while_names_are_swapped(tmp_path: Path) -> None:
    store = ImageStore(tmp_path / "store")
    with swapping(tmp_path) as (scratch, secret), SafeDirectory(scratch, SOMEBODY) as safe:
        found: set[bytes] = set()

        def outputs() -> None:
            for output in staging.outputs(safe, {}, ("d", "f")):
                if not output.directory:
                    with staging.open_output(safe, output.path) as handle:
                        found.add(handle.read())

        def keep() -> None:
            named = [staging.Output("d/key", "key"), staging.Output("d/f", "f")]
            for one in named:
                with contextlib.suppress(staging.StagingError):
                    manifest = saving.store_files(store, "1.0", 1.0, safe, [one])
                    assert manifest.parts[0].size != len("SECRET")

        def freeze() -> None:
            with store.begin("2.0") as draft:
                directory = tmp_path / "frozen"
                directory.mkdir(exist_ok=True)
                parts = freezing.ScratchSnapshot(scratch, SOMEBODY).gather(draft, directory, {})
                assert len("SECRET") not in [part.size for part in parts]

        for_a_while(outputs)
        for_a_while(keep)
        for_a_while(freeze)
        assert b"SECRET" not in found
        untouched(secret)


@as_root
def test_what_is_made_is_its_owners(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    os.chown(scratch, *SOMEBODY)
    (tmp_path / "source").write_text("x")
    with SafeDirectory(scratch, SOMEBODY) as safe:
        os.close(safe.create_file("a/b/c", 0o640))
        safe.move_in(tmp_path / "source", "a/moved", 0o755)
        safe.make_directory("e", 0o500)
        safe.make_pipe("a/pipe")
        safe.make_link(b"nowhere", "a/link")
    for path in scratch.rglob("*"):
        assert (path.lstat().st_uid, path.lstat().st_gid) == SOMEBODY
    assert stat.S_IMODE((scratch / "e").stat().st_mode) == 0o700
    os.close(os.open(tmp_path / "roots", os.O_WRONLY | os.O_CREAT, 0o600))
    assert (tmp_path / "roots").stat().st_uid == 0, "this thread has its own rights again"


@pytest.mark.parametrize("known", [True, False], ids=["openat2", "an old kernel"])
def test_links_are_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: bool) -> None:
    if not known:
        monkeypatch.setattr(safe_directory, "_OPENAT2", 1 << 20)
        monkeypatch.setattr(safe_directory, "_known_openat2", [False])
    (tmp_path / "in/deep").mkdir(parents=True)
    (tmp_path / "in/deep/file").write_text("x")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/file").write_text("secret")
    (tmp_path / "in/link").symlink_to("deep")
    (tmp_path / "in/away").symlink_to(tmp_path / "out")
    (tmp_path / "in/file").symlink_to("deep/file")
    os.mkfifo(tmp_path / "in/pipe")
    with SafeDirectory(tmp_path / "in") as safe:
        fd = safe.open_file("deep/file")
        assert os.read(fd, 9) == b"x"
        os.close(fd)
        for name in ("link/file", "away/file", "file"):
            with pytest.raises(OSError, match=r"Too many levels|Not a directory"):
                safe.open_file(name)
        for name in ("../out/file", "/etc/passwd", "deep/../../out/file"):
            with pytest.raises(ValueError, match="below"):
                open_beneath(safe.fd, name, os.O_RDONLY)
        for name in ("pipe", "deep"):
            with pytest.raises(NotRegular):
                safe.open_file(name)


def test_a_file_of_another_user_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    with SafeDirectory(tmp_path, (os.getuid() + 1, 1)) as safe, pytest.raises(NotTheOwners):
        safe.open_file("x")


def test_holes_stay_holes(tmp_path: Path) -> None:
    with (tmp_path / "from").open("w+b") as source, (tmp_path / "to").open("w+b") as target:
        source.seek(1 << 30)
        source.write(b"middle")
        source.truncate(1 << 32)
        source.flush()
        assert copy_data(source.fileno(), target.fileno()) == 1 << 32
        status = os.fstat(target.fileno())
        assert status.st_size == 1 << 32
        assert status.st_blocks * 512 < 1 << 20
        assert os.pread(target.fileno(), 6, 1 << 30) == b"middle"
