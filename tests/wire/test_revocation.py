"""The nodes on the list of revoked nodes, for how long, and that a damaged or older list removes none."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from cryptography import x509

from pool.outside import OutsideWorld
from pool.wire.authority import Authority
from pool.wire.certificates import NotOfThisPool, new_request
from pool.wire.credentials import pending_key
from pool.wire.revocation import REVOKED, Revocations, Revoked, issued_at
from pool.wire.trust_files import TrustError

CERTIFICATE = {
    "notBefore": "Jan  1 00:00:00 2026 GMT",
    "subjectAltName": (("URI", "poolnode:node/bad?roles=startd"),),
}
ISSUED = 1767225600.0 + 2 * 86400.0


def test_a_certificate_issued_before_is_refused_and_one_issued_after_is_not(tmp_path: Path) -> None:
    assert issued_at(CERTIFICATE) == ISSUED
    known = Revocations(tmp_path)
    known.check(CERTIFICATE)
    assert known.replace({"bad": ISSUED + 1, "other": 5.0}) == {"bad", "other"}
    with pytest.raises(Revoked, match="bad has been removed"):
        known.check(CERTIFICATE)
    with pytest.raises(Revoked):
        Revocations(tmp_path).check(CERTIFICATE)
    Revocations(tmp_path).check({**CERTIFICATE, "notBefore": "Jan  2 00:00:00 2026 GMT"})


def test_a_list_that_is_shorter_or_older_puts_nobody_back(tmp_path: Path) -> None:
    known = Revocations(tmp_path)
    known.replace({"bad": ISSUED + 1})
    assert known.replace({}) == set()
    assert known.replace({"bad": ISSUED - 1}) == set()
    with pytest.raises(Revoked):
        known.check(CERTIFICATE)


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / REVOKED).write_text("{")
    with pytest.raises(TrustError, match="damaged"):
        Revocations(tmp_path)
    with pytest.raises(NotOfThisPool):
        Revocations(tmp_path / "none").check({})
    assert issued_at({}) == 0.0


def test_a_name_that_joins_again_in_the_second_of_its_removal_is_let_in(tmp_path: Path) -> None:
    """A certificate's time has whole seconds; a renewal that was under way at the removal stays worthless."""
    now = 1_800_000_000.25
    authority = Authority.open(tmp_path, "pool", OutsideWorld(wall=lambda: now, chance=random.Random(1)))
    known, request = Revocations(tmp_path), new_request(pending_key(tmp_path), "bad")
    known.replace({"bad": now})
    now += 0.5
    for joins in (True, False):
        issued = x509.load_pem_x509_certificate(authority.issue_node(request, "bad", ["startd"], joins=joins).encode())
        certificate = {**CERTIFICATE, "notBefore": f"{issued.not_valid_before_utc:%b %d %H:%M:%S %Y GMT}"}
        if joins:
            known.check(certificate)
        else:
            with pytest.raises(Revoked):
                known.check(certificate)
