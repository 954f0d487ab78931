"""Does random operations on the files of a directory and says what came of each: operations.py DIRECTORY SEED COUNT.

Its output must not depend on where the directory lies. Run by a Python of the system, as a job would be.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import random
import stat
import sys

NAMES = ("a", "b", "c", "d/a", "d/b", "d/e/a", "d", "d/e", "f")
FLAGS = (
    os.O_RDONLY,
    os.O_WRONLY,
    os.O_RDWR,
    os.O_RDWR | os.O_CREAT,
    os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
    os.O_RDWR | os.O_CREAT | os.O_EXCL,
    os.O_WRONLY | os.O_CREAT | os.O_APPEND,
    os.O_RDONLY | os.O_DIRECTORY,
)


class World:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.open: list[int] = []

    def name(self) -> str:
        return self.chance.choice(NAMES)

    def descriptor(self) -> int:
        return self.chance.choice(self.open)

    def data(self) -> bytes:
        size = self.chance.choice((0, 1, 10, 1000, 4096, 5000, 70000, 300000))
        return bytes([self.chance.randrange(256)]) * size

    def place(self) -> int:
        return self.chance.choice((0, 1, 4095, 4096, 10000, 200000, 700000))

    def do_open(self) -> str:
        flags = self.chance.choice(FLAGS)
        fd = os.open(self.name(), flags, self.chance.choice((0o644, 0o600, 0o755)))
        self.open.append(fd)
        if len(self.open) > 12:
            os.close(self.open.pop(0))
        return "opened"

    def do_close(self) -> None:
        fd = self.descriptor()
        self.open.remove(fd)
        os.close(fd)

    def do_read(self) -> tuple[int, int]:
        return summary(os.read(self.descriptor(), self.chance.choice((1, 100, 5000, 200000))))

    def do_pread(self) -> tuple[int, int]:
        return summary(os.pread(self.descriptor(), self.chance.choice((1, 5000, 200000)), self.place()))

    def do_write(self) -> int:
        return os.write(self.descriptor(), self.data())

    def do_pwrite(self) -> int:
        return os.pwrite(self.descriptor(), self.data(), self.place())

    def do_seek(self) -> int:
        return os.lseek(self.descriptor(), self.place(), os.SEEK_SET)

    def do_seek_end(self) -> int | None:
        fd = self.descriptor()
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            return None
        return os.lseek(fd, -self.chance.randrange(10), os.SEEK_END)

    def do_ftruncate(self) -> None:
        os.ftruncate(self.descriptor(), self.place())

    def do_truncate(self) -> None:
        os.truncate(self.name(), self.place())

    def do_fsync(self) -> None:
        os.fsync(self.descriptor())

    def do_stat(self) -> tuple[object, ...]:
        return seen(os.lstat(self.name()))

    def do_fstat(self) -> tuple[object, ...]:
        return seen(os.fstat(self.descriptor()))

    def do_list(self) -> list[str]:
        return sorted(os.listdir(self.chance.choice((".", "d", "d/e", "a"))))

    def do_scan(self) -> list[tuple[str, bool]]:
        return sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in os.scandir("."))

    def do_rename(self) -> None:
        os.rename(self.name(), self.name())

    def do_link(self) -> None:
        os.link(self.name(), self.name(), follow_symlinks=False)

    def do_symlink(self) -> None:
        os.symlink(self.name(), self.name())

    def do_readlink(self) -> str:
        return os.readlink(self.name())

    def do_unlink(self) -> None:
        os.unlink(self.name())

    def do_mkdir(self) -> None:
        os.mkdir(self.chance.choice(("d", "d/e", "f")), 0o755)

    def do_rmdir(self) -> None:
        os.rmdir(self.name())

    def do_chmod(self) -> None:
        os.chmod(self.name(), self.chance.choice((0o600, 0o644, 0o700, 0o755)))

    def do_utime(self) -> int:
        name = self.name()
        os.utime(name, ns=(10**18 + 1, 10**18 + self.chance.randrange(1000)))
        return os.stat(name).st_mtime_ns

    def do_access(self) -> bool:
        return os.access(self.name(), self.chance.choice((os.R_OK, os.W_OK, os.R_OK | os.W_OK)))

    def do_map(self) -> bytes | None:
        fd = self.descriptor()
        if not stat.S_ISREG(os.fstat(fd).st_mode) or os.fstat(fd).st_size < 5000:
            return None
        if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDWR:
            return None
        with mmap.mmap(fd, 5000) as memory:
            before = bytes(memory[10:20])
            memory[10:20] = b"0123456789"
            memory[4990:5000] = b"abcdefghij"
        return before

    def do_lock(self) -> None:
        kind = self.chance.choice((fcntl.LOCK_SH, fcntl.LOCK_EX, fcntl.LOCK_UN))
        fcntl.lockf(self.descriptor(), kind | fcntl.LOCK_NB)

    def do_whole_lock(self) -> None:
        fcntl.flock(self.descriptor(), self.chance.choice((fcntl.LOCK_SH, fcntl.LOCK_UN)) | fcntl.LOCK_NB)

    def do_whole_file(self) -> tuple[int, int]:
        with open(self.name(), "rb") as file:
            return summary(file.read())

    def do_chdir(self) -> list[str]:
        here = os.getcwd()
        os.chdir("d")
        found = sorted(os.listdir("."))
        os.chdir("..")
        assert os.getcwd() == here
        return found


def summary(data: bytes) -> tuple[int, int]:
    return len(data), hash_of(data)


def hash_of(data: bytes) -> int:
    import zlib

    return zlib.crc32(data)


def seen(status: os.stat_result) -> tuple[object, ...]:
    if stat.S_ISDIR(status.st_mode):
        return oct(status.st_mode), status.st_uid == os.getuid()
    return oct(status.st_mode), status.st_size, status.st_nlink, status.st_uid == os.getuid()


def main() -> None:
    directory, seed, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    os.chdir(directory)
    os.umask(0o022)
    world = World(seed)
    operations = sorted(name for name in dir(World) if name.startswith("do_"))
    operations += ["do_open", "do_write", "do_read", "do_pwrite"] * 3
    for number in range(count):
        operation = world.chance.choice(operations)
        state = world.chance.getstate()
        try:
            outcome = getattr(world, operation)()
        except OSError as error:
            outcome = errno.errorcode[error.errno or 0]
        except (IndexError, ValueError) as error:
            outcome = type(error).__name__
        world.chance.setstate(state)
        world.chance.random()
        print(number, operation, outcome)


main()
