"""Trees that both machines see are found by random content, under whatever name; names alone prove nothing (figure
3).
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pool.remoteio.direct import Direct, Mount, candidates, find, mounts_of, place_probes, remove_probes
from pool.remoteio.path_lookup import Places
from pool.remoteio.trees import Tree, wishes_of
from pool.starter.files import VisibleFiles, seen_of
from tests.starter.support import spec

NONCE = "0123456789abcdef" * 2


def laid(tree: Path, directory: Path, nonce: str = NONCE) -> list[dict[str, Any]]:
    places = Places([Tree(str(tree))])
    try:
        return place_probes(places, [str(directory)], nonce)
    finally:
        places.close()


def test_a_tree_of_the_same_name_is_found_while_its_probe_lies_there(tmp_path: Path) -> None:
    inner = tmp_path / "tree/inner"
    inner.mkdir(parents=True)
    (probe,) = laid(tmp_path / "tree", inner)
    assert (probe["tree"], probe["directory"]) == (str(tmp_path / "tree"), str(inner))
    assert find([probe], os.geteuid(), os.getegid()) == [Direct(str(tmp_path / "tree"), str(tmp_path / "tree"))]
    remove_probes([probe])
    assert find([probe], os.geteuid(), os.getegid()) == []
    assert os.listdir(inner) == []


def test_a_directory_of_the_same_name_with_another_content_is_not_it(tmp_path: Path) -> None:
    (probe,) = laid(tmp_path, tmp_path)
    other = {**probe, "nonce": NONCE[::-1]}
    assert find([other], os.geteuid(), os.getegid()) == []


def test_the_same_disk_under_another_name_is_a_candidate() -> None:
    """TS figure 3: /u2/john where the job is submitted is /usr1/john where it runs."""
    probe = {"tree": "/u2", "directory": "/u2/john", "name": ".poolnode-probe.x", "nonce": NONCE}
    mounts = [Mount("/", "ext4", "/dev/sda"), Mount("/usr1", "nfs4", "server:/disk2")]
    assert Direct("/usr1", "/u2") in list(candidates(probe, mounts))
    deep = {**probe, "directory": "/u2/john/deep"}
    assert Direct("/usr1/john", "/u2/john") not in list(candidates(deep, mounts))
    assert all(one.home.startswith("/u2") for one in candidates(deep, mounts))


def test_nothing_is_laid_where_the_job_may_only_read(tmp_path: Path) -> None:
    places = Places([Tree(str(tmp_path), readonly=True)])
    assert place_probes(places, [str(tmp_path)], NONCE) == []
    places.close()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("inner", [":ro", ":static"])
def test_nothing_is_laid_around_what_the_job_may_only_read(tmp_path: Path, inner: str) -> None:
    (tmp_path / "work/data").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    places = Places(wishes_of(f"{tmp_path}/work,{tmp_path}/work/data{inner},{tmp_path}/other"))
    probes = place_probes(places, [f"{tmp_path}/work", f"{tmp_path}/work/data", f"{tmp_path}/other"], NONCE)
    places.close()
    assert [probe["tree"] for probe in probes] == [f"{tmp_path}/other"]
    assert [name for _, _, names in os.walk(tmp_path / "work") for name in names] == []


def test_names_of_probes_from_elsewhere_lead_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(NONCE)
    probe = {"tree": str(tmp_path), "directory": str(tmp_path), "name": "secret", "nonce": NONCE}
    assert find([probe, {**probe, "name": ".poolnode-probe./../secret"}], os.geteuid(), os.getegid()) == []


def test_what_would_show_the_nodes_state_is_not_opened_directly() -> None:
    facts = {"trees": [["/data", False], ["/home", False]], "home": "/home/ann"}
    found = [Direct("/data", "/data"), Direct("/net/home", "/home")]
    assert seen_of(facts, found, []).trees == ()
    kept = seen_of(facts, found, ["/net/home/ann/pool/spool"])
    assert (kept.trees, kept.binds) == (("/home",), (("/data", "/data"),))
    assert seen_of(facts, [Direct("/d/x", "/data/x")], []).trees == ("/data", "/home")


@pytest.mark.parametrize("given", [None, 5, [["/home"], 7, "/other"], ["/home"]])
def test_a_machine_serves_those_trees_as_static_that_are_shown_to_the_job(given: object) -> None:
    trees = [["/data", False], ["/home", True]]
    seen = seen_of({"trees": trees, "home": "/home/ann", "static": given}, [Direct("/data", "/data")], [])
    assert (seen.trees, seen.static_bits) == (("/home",), 1 if given == ["/home"] else 0)
    seen = seen_of({"trees": trees, "home": "/home/ann", "static": given}, [], [])
    assert seen.static_bits == (2 if given == ["/home"] else 0)


def test_what_a_job_sees_is_known_from_its_order(tmp_path: Path) -> None:
    seen = seen_of({"trees": [["/data", False], ["/home", True]], "home": "/home/ann", "static": ["/home"]}, [], [])
    order = spec(tmp_path, "/bin/true", remote=seen.trees, binds=seen.binds, static_remotes=seen.static_bits)
    assert VisibleFiles.of(replace(order, env={"HOME": "/home/ann"})) == seen


def test_the_kernels_table_is_read() -> None:
    table = (
        "21 1 8:1 / / rw - ext4 /dev/sda rw\n"
        "22 21 0:3 / /proc rw - proc proc rw\n"
        "23 21 0:40 /a /mnt/with\\040blank rw shared:1 - nfs4 server:/a rw\n"
    )
    assert mounts_of(table) == [Mount("/", "ext4", "/dev/sda"), Mount("/mnt/with blank", "nfs4", "server:/a")]
