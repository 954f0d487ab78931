"""Does random operations on the files of a directory and says what came of each: operations.py DIRECTORY SEED COUNT.

What it says must not depend on where the directory lies. Run by a Python of the system, as a job would be.
"""

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
    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.open = []

    def name(self):
        return self.chance.choice(NAMES)

    def descriptor(self):
        return self.chance.choice(self.open)

    def bytes(self):
        size = self.chance.choice((0, 1, 10, 1000, 4096, 5000, 70000, 300000))
        return bytes([self.chance.randrange(256)]) * size

    def place(self):
        return self.chance.choice((0, 1, 4095, 4096, 10000, 200000, 700000))

    def do_open(self):
        flags = self.chance.choice(FLAGS)
        fd = os.open(self.name(), flags, self.chance.choice((0o644, 0o600, 0o755)))
        self.open.append(fd)
        if len(self.open) > 12:
            os.close(self.open.pop(0))
        return "opened"

    def do_close(self):
        fd = self.descriptor()
        self.open.remove(fd)
        os.close(fd)

    def do_read(self):
        return summary(os.read(self.descriptor(), self.chance.choice((1, 100, 5000, 200000))))

    def do_pread(self):
        return summary(os.pread(self.descriptor(), self.chance.choice((1, 5000, 200000)), self.place()))

    def do_write(self):
        return os.write(self.descriptor(), self.bytes())

    def do_pwrite(self):
        return os.pwrite(self.descriptor(), self.bytes(), self.place())

    def do_seek(self):
        return os.lseek(self.descriptor(), self.place(), os.SEEK_SET)

    def do_seek_end(self):
        fd = self.descriptor()
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            return None
        return os.lseek(fd, -self.chance.randrange(10), os.SEEK_END)

    def do_ftruncate(self):
        os.ftruncate(self.descriptor(), self.place())

    def do_truncate(self):
        os.truncate(self.name(), self.place())

    def do_fsync(self):
        os.fsync(self.descriptor())

    def do_stat(self):
        return seen(os.lstat(self.name()))

    def do_fstat(self):
        return seen(os.fstat(self.descriptor()))

    def do_list(self):
        return sorted(os.listdir(self.chance.choice((".", "d", "d/e", "a"))))

    def do_scan(self):
        return sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in os.scandir("."))

    def do_rename(self):
        os.rename(self.name(), self.name())

    def do_link(self):
        os.link(self.name(), self.name(), follow_symlinks=False)

    def do_symlink(self):
        os.symlink(self.name(), self.name())

    def do_readlink(self):
        return os.readlink(self.name())

    def do_unlink(self):
        os.unlink(self.name())

    def do_mkdir(self):
        os.mkdir(self.chance.choice(("d", "d/e", "f")), 0o755)

    def do_rmdir(self):
        os.rmdir(self.name())

    def do_chmod(self):
        os.chmod(self.name(), self.chance.choice((0o600, 0o644, 0o700, 0o755)))

    def do_utime(self):
        name = self.name()
        os.utime(name, ns=(10**18 + 1, 10**18 + self.chance.randrange(1000)))
        return os.stat(name).st_mtime_ns

    def do_access(self):
        return os.access(self.name(), self.chance.choice((os.R_OK, os.W_OK, os.R_OK | os.W_OK)))

    def do_map(self):
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

    def do_lock(self):
        kind = self.chance.choice((fcntl.LOCK_SH, fcntl.LOCK_EX, fcntl.LOCK_UN))
        fcntl.lockf(self.descriptor(), kind | fcntl.LOCK_NB)

    def do_whole_lock(self):
        fcntl.flock(self.descriptor(), self.chance.choice((fcntl.LOCK_SH, fcntl.LOCK_UN)) | fcntl.LOCK_NB)

    def do_whole_file(self):
        with open(self.name(), "rb") as file:
            return summary(file.read())

    def do_chdir(self):
        here = os.getcwd()
        os.chdir("d")
        found = sorted(os.listdir("."))
        os.chdir("..")
        assert os.getcwd() == here
        return found


def summary(data):
    return len(data), hash_of(data)


def hash_of(data):
    import zlib

    return zlib.crc32(data)


def seen(status):
    if stat.S_ISDIR(status.st_mode):
        return oct(status.st_mode), status.st_uid == os.getuid()
    return oct(status.st_mode), status.st_size, status.st_nlink, status.st_uid == os.getuid()


def main():
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
