"""Memory in huge pages: what is written, what it asks of a machine, and how the job is started."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from pool.classad import ClassAd
from pool.jobs.activation import activation
from pool.jobs.description import DescriptionError
from pool.jobs.huge_pages import NEVER, THRIFTY, WASTEFUL, has_spare_memory, is_wanted, tunables
from pool.machine.huge_pages import offered_huge_pages
from tests.jobs.test_network import job


@pytest.mark.parametrize(
    ("text", "wish", "asks"),
    [
        ("", "", False),
        ("huge_pages = on", "on", True),
        ("huge_pages = True", "on", True),
        ("huge_pages = off", "off", False),
        ("huge_pages = no", "off", False),
        ('huge_pages = on\nrequirements = TARGET.HugePages == "thrifty"', "on", False),
    ],
)
def test_wishes(text: str, wish: str, asks: bool) -> None:
    ad = job(text)
    assert activation(ad, ClassAd({}), 1, None).huge_pages == wish
    assert ('TARGET.HugePages != "never"' in str(ad.get("Requirements"))) is asks


def test_another_word_is_refused() -> None:
    with pytest.raises(DescriptionError, match="expected on or off for 'huge_pages', not 'madvise'"):
        job("huge_pages = madvise")


@pytest.mark.parametrize(
    ("offer", "spare", "jobs"),
    [
        (NEVER, True, set()),
        (WASTEFUL, False, {"on"}),
        (WASTEFUL, True, {"", "on"}),
        (THRIFTY, False, {"", "on"}),
        ("garbage", True, set()),
    ],
)
def test_who_gets_them(offer: str, spare: bool, jobs: set[str]) -> None:
    assert {wish for wish in ("", "on", "off") if is_wanted(wish, offer, spare=spare)} == jobs


@pytest.mark.parametrize(
    ("slot", "available", "enforced", "spare"),
    [(1000, 1000, False, True), (1000, 999, False, False), (1000, 9000, True, False), (0, 9000, False, False)],
)
def test_memory_to_spare(slot: int, available: int, enforced: bool, spare: bool) -> None:
    assert has_spare_memory(slot, available, enforced=enforced) is spare


@pytest.mark.parametrize(
    ("own", "value"),
    [
        ("", "glibc.malloc.hugetlb=1"),
        ("glibc.malloc.check=3", "glibc.malloc.check=3:glibc.malloc.hugetlb=1"),
        ("glibc.malloc.check=3:glibc.malloc.hugetlb=0", "glibc.malloc.check=3:glibc.malloc.hugetlb=0"),
    ],
)
def test_settings_of_the_job_itself_stay(own: str, value: str) -> None:
    assert tunables(own) == value


@pytest.mark.parametrize(
    ("enabled", "shrinks", "unwritten", "offer"),
    [
        ("always [madvise] never", "1", "409", THRIFTY),
        ("[always] madvise never", "1", "510", THRIFTY),
        ("always [madvise] never", "1", "511", WASTEFUL),
        ("always [madvise] never", "0", "409", WASTEFUL),
        ("always [madvise] never", None, "409", WASTEFUL),
        ("always [madvise] never", "1", None, WASTEFUL),
        ("always madvise [never]", "1", "409", NEVER),
        (None, None, None, NEVER),
    ],
)
def test_offers_of_kernels(
    tmp_path: Path, enabled: str | None, shrinks: str | None, unwritten: str | None, offer: str
) -> None:
    (tmp_path / "khugepaged").mkdir()
    settings = {
        "enabled": enabled,
        "shrink_underused": shrinks,
        "khugepaged/max_ptes_none": unwritten,
        "hpage_pmd_size": str(512 * resource.getpagesize()),
    }
    for name, text in settings.items():
        if text is not None:
            (tmp_path / name).write_text(text + "\n")
    assert offered_huge_pages(tmp_path) == offer
