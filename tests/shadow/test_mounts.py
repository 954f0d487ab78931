"""Which paths may hang, from a table of mounts."""

from __future__ import annotations

from pathlib import Path

from pool.shadow.mounts import Mounts

TABLE = r"""
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /home rw shared:2 - autofs systemd-1 rw
31 30 0:41 / /home/ann rw shared:3 - nfs4 server:/ann rw
32 22 0:42 / /mnt/my\040disk rw - fuse.sshfs far: rw
33 22 0:43 / /tmp rw - tmpfs tmpfs rw
""".lstrip()


def test_by_the_longest_mount(tmp_path: Path) -> None:
    (tmp_path / "t").write_text(TABLE)
    mounts = Mounts(str(tmp_path / "t"))
    assert not mounts.may_hang("/etc/passwd", 0.0)
    assert mounts.may_hang("/home/ann/work/x", 0.0)
    assert mounts.may_hang("/home/bob/x", 0.0)
    assert mounts.may_hang("/home/ann", 0.0)
    assert mounts.may_hang("/mnt/my disk/x", 0.0)
    assert not mounts.may_hang("/tmp/x", 0.0)
    assert not mounts.may_hang("/homely/x", 0.0)


def test_the_table_is_read_again_when_it_is_old(tmp_path: Path) -> None:
    table = tmp_path / "t"
    table.write_text(TABLE)
    mounts = Mounts(str(table))
    assert not mounts.may_hang("/data/x", 5.0)
    table.write_text(TABLE + "34 22 0:44 / /data rw - lustre mgs:/ rw\n")
    assert not mounts.may_hang("/data/x", 6.0)
    assert mounts.may_hang("/data/x", 60.0)


def test_without_a_table_everything_may_hang(tmp_path: Path) -> None:
    assert Mounts(str(tmp_path / "none")).may_hang("/etc/passwd", 0.0)
