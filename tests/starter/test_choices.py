"""A starter's order to the keeper for a job: by its mode, its user, its machine's settings and its own wishes."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from pool.classad import parse_ad
from pool.jobs.activation import Activation, FileMode, activation
from pool.starter.place import ExecutionSite, UnixAccount
from pool.starter.private_tmp import NamedFiles, names_a_file_there
from pool.starter.show_paths import ShownDirectory, WrongPath, shown
from pool.starter.spec import Abilities, Member
from pool.starter.starter import Starter

OWN = UnixAccount(1000, 1000, None, "me", "/home/me", False)
OTHER = dataclasses.replace(OWN, uid=1001, switch=True)


class Allowed:
    """Keepers that start nothing."""

    def __init__(self, full: bool) -> None:
        self.abilities = Abilities(full=full)


def asked(
    tmp_path: Path,
    account: UnixAccount = OWN,
    mode: FileMode = FileMode.SHARED,
    wants: bool = True,
    full: bool = True,
    **place: Any,
) -> Any:
    start = Activation((1, 0), 1, "me", mode, "/bin/true", None, ("/bin/true",), {}, "/", network=wants)
    where = ExecutionSite("slot1", tmp_path, tmp_path, 1, None, **place)
    return Starter(start, account, where, Allowed(full), None)._program.spec(lambda: 60.0, {})  # type: ignore[arg-type]


def test_a_scratch_directory_has_the_same_name_wherever_the_machine_can_give_it_one(tmp_path: Path) -> None:
    fixed = asked(tmp_path, mode=FileMode.TRANSFER)
    assert (fixed.fixed, fixed.cwd, fixed.env["_CONDOR_SCRATCH_DIR"]) == (True, "/job", "/job")
    assert fixed.scratch == str(tmp_path / "slot1")
    for plain in (asked(tmp_path), asked(tmp_path, mode=FileMode.TRANSFER, full=False)):
        assert (plain.fixed, plain.env["_CONDOR_SCRATCH_DIR"]) == (False, str(tmp_path / "slot1"))


def test_who_shares_user_and_files_with_the_node_is_not_filtered(tmp_path: Path) -> None:
    assert asked(tmp_path).filter == ""
    assert asked(tmp_path, account=OTHER).filter == "plain"
    assert asked(tmp_path, mode=FileMode.TRANSFER).filter == "plain"
    assert asked(tmp_path, mode=FileMode.TRANSFER, system_calls="namespaces").filter == "nested"
    assert asked(tmp_path, account=OTHER, system_calls="all").filter == ""


def test_no_network_when_the_machine_or_the_job_says_so(tmp_path: Path) -> None:
    assert asked(tmp_path).network == "host"
    assert asked(tmp_path, network="none").network == "none"
    assert asked(tmp_path, mode=FileMode.TRANSFER, wants=False).network == "none"


def test_a_job_says_so_with_want_job_networking() -> None:
    slot = parse_ad('[FileSystemDomain = "here"]')
    for text, network in (("true", True), ("false", False), ("undefined", True)):
        job = parse_ad(f'[Cmd = "/bin/true"; FileSystemDomain = "here"; WantJobNetworking = {text}]')
        assert activation(job, slot, 1, None).network is network


def has_own_tmp(directory: str = "/home/me", execute: str = "/execute", private_tmp: bool = True, **job: Any) -> bool:
    mode = job.pop("mode", FileMode.SHARED)
    given: dict[str, Any] = {"executable": "/bin/true", "argv": ("true", "x"), **job}
    start = Activation((1, 0), 1, "me", mode, digest=None, env={}, iwd=directory, **given)
    where = ExecutionSite("slot1", Path(execute), Path("/executables"), 1, None, private_tmp=private_tmp)
    starter = Starter(start, OWN, where, Allowed(True), None)  # type: ignore[arg-type]
    return starter._program.spec(lambda: 60.0, {}).private_tmp


def test_a_job_that_opens_its_files_in_place_has_its_own_tmp() -> None:
    assert has_own_tmp()
    assert not has_own_tmp(private_tmp=False)
    assert not has_own_tmp(mode=FileMode.TRANSFER), "it has one by the file tree of its own"
    assert has_own_tmp(argv=("sort", "-T", "/tmp", "--temporary-directory=/tmp", "/tmpfiles", "a/../tmp/x"))
    assert has_own_tmp(stdout="out", stdin="/data/tmp/in", executable="/home/me/tmp/program")
    assert has_own_tmp(execute="/tmp/execute", argv=("true", "/tmp/execute/slot1/x"))


@pytest.mark.parametrize(
    "job",
    [
        *({"directory": name} for name in ("/tmp", "/tmp/me", "/var/tmp/", "//dev/shm", "/home/../tmp")),
        *({"argv": ("true", word)} for word in ("/tmp/x", "--cache=/var/tmp/x", "../../tmp/x", "cache=/dev/shm/x")),
        {"executable": "/tmp/program"},
        {"stdin": "/tmp/in"},
        {"stdout": "/dev/shm/out"},
        {"stderr": "../../tmp/err"},
    ],
)
def test_a_job_that_names_a_file_there_sees_the_machines(job: dict[str, Any]) -> None:
    assert not has_own_tmp(**job)


def test_of_several_processes_one_that_names_a_file_there_is_enough() -> None:
    def processes(*words: str) -> list[NamedFiles]:
        return [NamedFiles.of(Member("cat", ("/bin/cat", word), cwd="/home")) for word in words]

    assert not names_a_file_there(processes("x", "y"), "")
    assert names_a_file_there(processes("x", "/tmp/y"), "")


def test_paths_to_show() -> None:
    assert shown("") == ()
    found = shown("/opt/conda, /software/ /home/me/miniconda")
    assert found == tuple(map(ShownDirectory, ("/opt/conda", "/software", "/home/me/miniconda")))
    for wrong in ("conda", "/", "//", "/home", "/root/", "/x/../home", "/var", "/proc"):
        with pytest.raises(WrongPath, match="SHOW_PATHS"):
            shown(wrong)


def test_a_shown_path_may_be_writable_and_for_some_only() -> None:
    (open_to_all, ours) = shown("/data:rw /no/such:rw:root+%root")
    assert open_to_all == ShownDirectory("/data", writable=True)
    assert ours == ShownDirectory("/no/such", True, frozenset({0}), frozenset({0}))
    assert ours.is_for(0, {5})
    assert ours.is_for(5, {7, 0})
    assert not ours.is_for(5, {7})
    assert open_to_all.is_for(5, ())
    assert shown("/x:ro:root")[0] == ShownDirectory("/x", False, frozenset({0}))
    for wrong in (
        "/x:wr",
        "/x:rw:",
        "/x:rw:nobody-there",
        "/x:rw:%nobody-there",
        "/x:rw:root:root",
        "/etc/passwd:ro:root",
    ):
        with pytest.raises(WrongPath, match="SHOW_PATHS"):
            shown(wrong)


def test_malloc_asks_for_huge_pages_where_the_kernel_takes_unused_ones_back_or_memory_is_spare(tmp_path: Path) -> None:
    assert asked(tmp_path, huge_pages="thrifty").env["GLIBC_TUNABLES"] == "glibc.malloc.hugetlb=1"
    assert "GLIBC_TUNABLES" not in asked(tmp_path, huge_pages="wasteful").env
    spare = asked(tmp_path, huge_pages="wasteful", spare_memory=True)
    assert spare.env["GLIBC_TUNABLES"] == "glibc.malloc.hugetlb=1"
    assert "GLIBC_TUNABLES" not in asked(tmp_path).env
