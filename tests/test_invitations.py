"""Other pools among the names that a pool's authority keeps: no machine loses its name to another pool."""

from __future__ import annotations

from pathlib import Path

import pytest

from pool.config import Settings
from pool.enrolment import Enrolment, NotInAPool
from pool.errors import PoolError
from pool.outside import OutsideWorld
from pool.roles.world.invitations import NoInvitation, admitting_pools, check_invitation, known_authorities
from pool.wire.authority import NodeNameTaken
from pool.wire.certificates import new_key, new_request
from pool.wire.identity import PEER_POOL
from pool.wire.tokens import Token

ADDRESS = "tcp://127.0.0.1:1"


async def opened(place: Path, join: str | None = None) -> Enrolment:
    """The first node of a pool chem, whose node is called first."""
    sets = {"POOL_NAME": "chem", "LISTEN": "127.0.0.1:0"}
    settings = Settings.load(None, sets=sets, environ={}, files=False)
    return await Enrolment.open(place, "first", ("collector", "world"), settings, OutsideWorld(), join)


def admit(chem: Enrolment, name: str, *roles: str) -> None:
    """Give a name a certificate."""
    chem.sign_anew(new_request(new_key(), name), name, roles)


@pytest.mark.parametrize(
    ("pool", "why"),
    [
        (None, "an invitation is for one pool"), ("", "an invitation is for one pool"), ("chem", "this pool itself"),
        ("first", "this pool itself"), ("donder", "donder is a machine of this pool"),
        ("DONDER", "donder is a machine of this pool"), ("../x", "cannot be the name"), ("a b", "cannot be the name"),
    ],
)  # fmt: skip
async def test_an_invitation_is_for_a_name_of_its_own(tmp_path: Path, pool: str | None, why: str) -> None:
    chem = await opened(tmp_path)
    admit(chem, "donder", "startd")
    with pytest.raises(PoolError, match=why):
        chem.token(ADDRESS, {"roles": [PEER_POOL], "node": pool}, "root")
    assert chem.tokens().listed() == []


@pytest.mark.parametrize("lifetime", [0, -1, float("nan"), float("inf"), 1e30])
async def test_a_token_is_good_for_some_time(tmp_path: Path, lifetime: float) -> None:
    chem = await opened(tmp_path)
    with pytest.raises(PoolError, match="cannot be good for"):
        chem.token(ADDRESS, {"roles": ["startd"], "lifetime": lifetime}, "root")


async def test_no_pool_takes_the_name_of_a_machine_and_no_machine_that_of_a_pool(tmp_path: Path) -> None:
    """Whatever was invited before: the names are looked at when a certificate is given out, too."""
    chem = await opened(tmp_path)
    authority = chem._signer()
    admit(chem, "donder", "startd")
    admit(chem, "physics", PEER_POOL)
    for name, role in (("donder", PEER_POOL), ("physics", "startd"), ("first", PEER_POOL)):
        with pytest.raises(NodeNameTaken, match="is the name of another"):
            authority.issue_node(new_request(new_key(), name), name, [role], replace=True)
    assert authority.nodes()["first"]["roles"] == ["authority", "collector", "world"]


async def test_an_end_of_an_agreement_puts_no_machine_out(tmp_path: Path) -> None:
    chem = await opened(tmp_path)
    admit(chem, "donder", "startd")
    admit(chem, "physics", PEER_POOL)
    chem.token(ADDRESS, {"roles": [PEER_POOL], "node": "bio"}, "root")
    assert chem.pools() == ["physics"]
    assert [chem.withdraw_invitations(pool) for pool in ("donder", "physics", "bio", "bio")] == [0, 0, 1, 0]


async def test_a_token_for_something_else_is_not_used_up(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    chem = await opened(tmp_path)
    made = {
        "flock": chem.token(ADDRESS, {"roles": [PEER_POOL], "node": "physics"}, "root")["token"],
        "machine": chem.token(ADDRESS, {"roles": ["startd"]}, "root")["token"],
        "user": chem.tokens().issue_user(ADDRESS, chem.fingerprint, "alice", 600).text,
    }
    with pytest.raises(NotInAPool, match="invites another pool, and lets no machine in"):
        await opened(tmp_path_factory.mktemp("machine"), made["flock"])
    for text, why in (
        (made["machine"], "lets a machine join a pool, and is no invitation"),
        (made["user"], "lets a user in, and no pool"),
        ("pooljoin-xx", "is not whole"),
        ("", "is not a token"),
    ):
        with pytest.raises(NoInvitation, match=why):
            check_invitation(text, "", {})
    with pytest.raises(NoInvitation, match="of this pool itself"):
        check_invitation(made["flock"], chem.fingerprint, {})
    with pytest.raises(NoInvitation, match="already, under the name labs"):
        check_invitation(made["flock"], "", {"math": "0" * 64, "labs": chem.fingerprint})
    assert check_invitation(made["flock"], "0" * 64, {}) == Token.read(made["flock"])


def test_an_invitation_that_was_taken_half_is_no_agreement(tmp_path: Path) -> None:
    """The process was killed: the next start of its node must not fail for it."""
    assert admitting_pools(tmp_path / "none") == []
    (tmp_path / "chem").mkdir()
    (tmp_path / "chem" / "node.key").write_text("key")
    assert admitting_pools(tmp_path) == []
    assert known_authorities(tmp_path) == {}
