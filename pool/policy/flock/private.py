"""The private flock: one user's jobs in several pools, without any agreement between these pools (EV 4.1).

The user has an account in each. The pool where the job is submitted is its *home*; its queue is the only one in which
the job is. Each other pool gets a *wish*: so many machines for jobs like this one, in the user's own name there. That
pool's negotiator serves it as it serves the jobs that the user submits there, with the same priority.

    home                                              the other pool
    wishes of the user's idle jobs          ---->     a submitter of that user, beside the one of its schedds
    claims, each with a lease               <----     slots that were matched and claimed
    one of its idle jobs starts on each,
    or the claim is given back              ---->

A claim is a leave to start, not a start: home's queue chooses the job, and writes that down before the start is sent.
So two pools that grant in the same instant start one job once. Nothing can start while home is out of reach, and a
claim that home does not renew ends by itself.

A claim that comes while home's next wishes are under way is in neither; `still_wanted` counts it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pool.errors import PoolError
from pool.policy.flock.offer_bounds import size_of
from pool.policy.flock.shown import FOREIGN, GUEST_OF, LENDER, WANTS_FLOCK, check_guest_start

Wire = dict[str, Any]
#: In a job's ad: the pools beside its own in which it may run, between commas.
ALSO = "FlockAlso"
#: Between a pool and a user in the name of their connection. No name of a pool or of a user has it.
OF = "~"
#: Wishes of one user at a time, and slots of one wish.
MOST_WISHES, MOST_SLOTS = 500, 1_000_000
#: Bytes of the ads of these wishes.
MOST_BYTES = 8 * 1024 * 1024
#: Seconds for which a wish is not repeated after a claim for it was of no use: the first time, and at most.
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
#: Pools beside its own that one job, and one user, may name.
MOST_POOLS = 20


class BadWish(PoolError):
    """A message of a private flock that cannot be taken in."""


class BadPools(PoolError):
    """The other pools of a job cannot be taken in."""


@dataclass(frozen=True, slots=True)
class FlockWish:
    """Slots for jobs of one kind of one schedd at home.

    Attributes:
        schedd: the name of the schedd's node. number: of the request there.
        lease: seconds. oldest: wall time since when the first of them waits.
    """

    schedd: str
    number: int
    count: int
    lease: float
    oldest: float
    ad: Wire

    @property
    def key(self) -> tuple[str, int]:
        return (self.schedd, self.number)

    @property
    def size(self) -> int:
        """Bytes of its ad."""
        return size_of(self.ad)

    def to_wire(self) -> list[Any]:
        return [self.schedd, self.number, self.count, self.lease, self.oldest, self.ad]


@dataclass(frozen=True, slots=True)
class Delivery:
    """Claims that were sent home: the number of the message, the wish, and how many."""

    sequence: int
    key: tuple[str, int]
    count: int


def party(pool: str, user: str) -> str:
    """The name of the connection of one user's jobs with another pool."""
    return f"{pool}{OF}{user}"


def pool_of(name: str) -> str:
    """The pool by itself, of a party or of a pool with an agreement."""
    return name.partition(OF)[0]


def pools_of(text: Any) -> tuple[str, ...]:
    """The pools that a job's ad names beside its own.

    Raises:
        BadPools: it is no list of names, or they are too many.
    """
    if text is None:
        return ()
    if not isinstance(text, str):
        raise BadPools(f"{ALSO} is no list of pools", hint="also_pools = chem, bio")
    names = tuple(dict.fromkeys(text.replace(",", " ").split()))
    if len(names) > MOST_POOLS or any(OF in name or "@" in name or len(name) > 200 for name in names):
        raise BadPools(
            f"also_pools = {text[:60]} is no list of up to {MOST_POOLS} pools", hint="also_pools = chem, bio"
        )
    return names


def check_job(ad: Mapping[str, Any]) -> None:
    """Refuse a job that names other pools and can run in none of them.

    Args:
        ad: the job's, in wire form.

    Raises:
        BadPools: why it cannot.
    """
    if not pools_of(ad.get(ALSO)):
        return
    if ad.get(WANTS_FLOCK) is False:
        raise BadPools("also_pools names other pools, and flock = false keeps the job in its own", hint="drop one")
    if "GangParts" in ad or ad.get("JobUniverse") in (7, 8, 11, 12):
        raise BadPools("also_pools: a job on several machines, or on the submit machine, stays in its pool")
    if str(ad.get("ShouldTransferFiles", "")).upper() == "NO":
        raise BadPools(
            "also_pools: no other pool has the files of a job that opens them in place",
            hint="should_transfer_files = YES, or remote_io = on",
        )


def wishes_of(answer: Iterable[Mapping[str, Any]], pool: str, schedd: str, lease: float) -> list[FlockWish]:
    """The wishes to another pool that follow from a schedd's requests.

    Args:
        answer: as `schedd.requests` gives them.
        pool: the other one.
        schedd: the name of the schedd's node.
        lease: seconds.
    """
    found = []
    for item in answer:
        ad = item["ad"]
        if ad.get(WANTS_FLOCK) is False or "GangParts" in ad or item.get("moving"):
            continue
        try:
            named = pools_of(ad.get(ALSO))
        except BadPools:
            continue  # by an edit of the job's
        if pool in named:
            found.append(
                FlockWish(schedd, int(item["number"]), int(item["count"]), lease, float(item["oldest"]), dict(ad))
            )
    return found


def read_wishes(said: Any) -> tuple[int, list[FlockWish]]:
    """A message of home: {seen: number of the last delivery that home had, wishes}.

    Raises:
        BadWish: it is none.
    """
    match said:
        case {"seen": int(seen), "wishes": list(items)} if len(items) <= MOST_WISHES:
            wishes = [_wish(item) for item in items]
            if sum(wish.size for wish in wishes) > MOST_BYTES:
                raise BadWish(f"the ads of wishes have {MOST_BYTES:,} bytes at most")
            return seen, wishes
    raise BadWish(f"wishes are a number and a list of up to {MOST_WISHES}")


def within_bounds(wishes: Iterable[FlockWish]) -> list[FlockWish]:
    """As many wishes as the other pool takes in, those first that have waited longest."""
    found, size = list[FlockWish](), 0
    for wish in sorted(wishes, key=lambda wish: wish.oldest):
        if len(found) < MOST_WISHES and size + wish.size <= MOST_BYTES:
            found.append(wish)
            size += wish.size
    return found


def _wish(item: Any) -> FlockWish:
    match item:
        case [str(schedd), int(number), int(count), int() | float() as lease, int() | float() as oldest, dict(ad)]:
            named = 0 < len(schedd) <= 200 and all(isinstance(name, str) for name in ad)
            if named and 0 <= number < 2**53 and 0 < count <= MOST_SLOTS and 0 < lease < 1e9 and 0 <= oldest < 1e12:
                return FlockWish(schedd, number, count, float(lease), float(oldest), ad)
    raise BadWish("a wish is not [schedd, number, count, lease, oldest, ad]")


def still_wanted(wish: FlockWish, seen: int, deliveries: Iterable[Delivery]) -> int:
    """How many slots a wish wants beyond those that are on their way home.

    Args:
        seen: the last delivery that home knew of when it worked out the wish.
    """
    coming = sum(one.count for one in deliveries if one.sequence > seen and one.key == wish.key)
    return max(0, wish.count - coming)


def pause_after(useless: int) -> float:
    """Seconds until a wish is repeated for which so many claims in turn were of no use."""
    return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(useless - 1, 10)) if useless > 0 else 0.0


def users_request(ad: Wire, user: str, home: str, pool: str, domain: str) -> Wire:
    """A wish as the other pool's negotiator and startds see it: a request of that user there.

    Args:
        ad: as home tells it; not trusted.
        user: as the other pool knows him. home: the name of his own pool.
        pool, domain: the name of the other pool, and its UID_DOMAIN.
    """
    own = {name: value for name, value in ad.items() if name.lower() not in (*FOREIGN, LENDER.lower())}
    mark = f"flock.{home}{OF}{user}"
    return {
        **own,
        "Owner": user,
        "User": f"{user}@{domain}",
        GUEST_OF: f"{OF}{home}",
        LENDER: pool,
        "FileSystemDomain": mark,
        "UidDomain": mark,
        "NiceUser": False,
    }


def users_order(order: Wire, user: str, home: str, domain: str) -> Wire:
    """The order to start a user's job from home, as the other pool's startd gets it.

    Raises:
        NotForGuests: the job would work on files of the pool's machines.
    """
    check_guest_start(order.get("start"))
    found = dict(order)
    for name in ("shared", "own"):
        part = order.get(name)
        if isinstance(part, dict):
            own = {key: value for key, value in part.items() if str(key).lower() not in FOREIGN}
            found[name] = {**own, "Owner": user, "User": f"{user}@{domain}", GUEST_OF: f"{OF}{home}", "NiceUser": False}
    return found
