"""An honest pool of real nodes, and one that has agreements with it, speaks the real wire, and lies (EV 8).

The evil pool has the certificates and keys that its agreements give it. Whatever it says, own jobs start as without it,
nothing grows without bound, and the log has a line about it. `tests/roles/test_flock_enemies.py` has more of its lies.
"""

from __future__ import annotations

import asyncio
import json
import math
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from pool.client import Pool
from pool.policy.flock.ledger import CreditEntry, EntryKind
from pool.wire import RemoteError
from pool.wire.signing import SigningKey
from tests.e2e import support
from tests.e2e.evil_pool import REQUEST, STARTD, EvilPool, Wire, evil_pool
from tests.e2e.flocks import BOTH
from tests.e2e.support import Node, Nodes, administrator, asked, client, outcome, poolnode, program, slots, token, until

pytestmark = pytest.mark.own_pool("the evil pool is a node of the test's own process")
#: Connections for schedds of another pool without claims (pool/roles/world/lending.py), and what else comes and goes.
UNUSED, OTHERS = 256, 64
#: Seconds for an own job, on a machine that does ten other things: with nothing in its way it takes a tenth of one.
SOON = 20.0


@pytest.fixture(scope="module")
def honest(whose_pool: object) -> Iterator[Nodes]:
    """chem: a head, and a machine of one slot beside it that joined."""

    async def start(nodes: Nodes) -> None:
        agreements = nodes.place / "flock.toml"
        agreements.write_text('[limited]\nmachines = 1\nusers = ["alice"]\n')
        file = str(agreements)
        chem = nodes.start("chem", BOTH, SLOTS="1", FILESYSTEM_DOMAIN="chem", CLAIM_LEASE="4", FLOCK_FILE=file).ready()
        join = await token(chem, "startd")
        nodes.start("bench", "startd", join=join, SLOTS="1", FILESYSTEM_DOMAIN="chem").ready()
        async with client(chem) as pool:
            await slots(pool, 2)

    with support.running(start) as nodes:
        yield nodes


@pytest.fixture
def home(honest: Nodes, request: pytest.FixtureRequest) -> Path:
    return honest.directory(support.directory_name(request))


async def own_job_runs(pool: Pool, home: Path) -> None:
    """A job of the pool's own starts and ends in time."""
    async with asyncio.timeout(SOON):
        assert (await outcome(pool, home, executable="/bin/true", flock="false")).ok


async def told(node: Node, message: str, **fields: Any) -> Wire:
    """As `Node.said`, while the evil pool goes on."""
    return await asyncio.to_thread(node.said, message, **fields)


def lines(node: Node, message: str, pool: str) -> list[Wire]:
    return [line for line in node.log if line.get("message") == message and line.get("pool") == pool]


def memory(node: Node) -> float:
    """MB."""
    return float(psutil.Process(node.process.pid).memory_info().rss / 1e6)


async def test_a_million_machines_in_one_message_end_that_connection(honest: Nodes, home: Path) -> None:
    chem = honest.all[0]
    async with evil_pool(chem) as evil, client(chem) as pool:
        await evil.lend([["a@b", None]] * 1_000_000)
        await own_job_runs(pool, home)
        said = await told(chem, "another pool is out of reach", pool=evil.name)
        assert said["error"] == "it offers 1000000 machines in one message"
        await own_job_runs(pool, home)


async def test_offers_take_no_more_memory_than_a_bound(honest: Nodes, home: Path) -> None:
    """Some hundred machines whose ads are 60 KB each, under other pools' and our own machines' names."""
    chem = honest.all[0]
    async with evil_pool(chem) as evil, client(chem) as pool:
        await evil.borrow()
        names = ["slot1@chem", "slot1@bench", *(f"slot{number}@den" for number in range(400))]
        fat = {**evil.machine, "Machine": "chem", "FlockPool": "bio", "Description": "x" * 55_000}
        before = memory(chem)
        others = await _names(pool)  # of another test's pool some may be there for a while
        await evil.lend(*([[name, {**fat, "Extra": name}] for name in names[at : at + 50]] for at in range(0, 402, 50)))
        await told(chem, "another pool offers more than is taken in", pool=evil.name)
        await own_job_runs(pool, home)
        found = await _names(pool)
        assert {"slot1@chem", "slot1@bench"} <= found
        its = {name for name in found if name.endswith(f"@{evil.name}@chem")}
        assert its == found - others - {"slot1@chem", "slot1@bench"}
        assert len(its) < 320
        assert memory(chem) - before < 300
        assert len(lines(chem, "another pool offers more than is taken in", evil.name)) == 1


async def _names(pool: Pool) -> set[str]:
    return {str(ad.value("Name")) for ad in await pool.machines(attributes=["Name"])}


LONG_CALL = 'strcat("x"' + ', "x"' * 1000 + ")"
#: Attributes that no machine has.
ODD: tuple[Wire, ...] = (
    *({"Cpus": value, "Memory": value, "Disk": value, "KFlops": value} for value in (-5, 1e300, math.nan, math.inf, 0)),
    *({"Cpus": value, "State": value, "FlockCount": value} for value in ("many", {"a": 1}, [["a"]], b"a", None, True)),
    *({"FlockCount": -7}, {"FlockCount": 10**18}, {"FlockIdle": "x"}, {"Rank": ["x("]}, {"DedicatedSchedulers": "a"}),
    *({"Requirements": 7}, {"Requirements": ["(" * 20_000]}, {"Requirements": ["true) || (true"]}),
    *({"Arch": [LONG_CALL]}, {"Cpus": ["1+" * 5000 + "1"]}, {"Memory": ["pow(2,99999999)"]}),
    *({"": 1}, {"a b": 1}, {"x" * 10_000: 1}, {"\x1b[2J": "\x1b[2J\n"}, {"OpSys": "\x1b[2J\n005 (1.0.0)"}),
)


async def test_statuses_of_no_sense_cost_no_job_and_no_listing(honest: Nodes, home: Path) -> None:
    chem = honest.all[0]
    async with evil_pool(chem) as evil, client(chem) as pool:
        await evil.borrow()
        await evil.lend([[f"slot{number}@den", {**evil.machine, **odd}] for number, odd in enumerate(ODD)])
        await asked(lambda: _machines(pool, f"@den@{evil.name}@chem", len(ODD)), "its machines to be seen")
        await own_job_runs(pool, home)
        wish = {"executable": "/bin/true", "requirements": 'FlockPool =?= "nosuch"'}
        waiting = await pool.submit(wish, iwd=str(home))
        for words in (["status"], ["flock"], ["why", f"{waiting.cluster}.0"], ["status", "--json"]):
            shown = poolnode(*words, "-A", chem.address)
            assert shown.returncode == 0, (words, shown.stderr)
            assert "\x1b" not in shown.stdout, words
        await waiting.remove()


async def _machines(pool: Pool, end: str, number: int) -> bool:
    return sum(str(ad.value("Name")).endswith(end) for ad in await pool.machines(attributes=["Name"])) >= number


#: Reports of ends of no sense: each has one field that is wrong.
ENDS: tuple[Wire, ...] = (
    *({"code": code} for code in ("x", {"a": 1}, 2**63, -(10**15), math.nan, [1], True)),
    *({"signal": signal} for signal in ("x", [1], math.inf, 2**62)),
    *({"cause": cause} for cause in (7, {"a": 1}, [None])),
    *({name: bad} for name in ("wall", "user_cpu", "max_rss", "sent") for bad in (math.nan, -1, 1e300, "x", [1])),
    *({"why": {"a": 1}}, {"said": 7}, {"error": [1]}, {"costs": {"a": "b"}}, {"costs": 7}, {"released": "x"}),
    *({"ends": [[[[[[1]]]]]]}, {"network": {"sent": math.nan}}, {"started": "x"}, {"subcode": "x"}, {"core": 7}),
)


async def test_ends_that_make_no_sense_end_nothing(honest: Nodes, home: Path) -> None:
    """Each is refused in words, as ends of other jobs and runs are; then it says a good one, again and again."""
    chem = honest.all[0]
    async with evil_pool(chem) as evil, client(chem) as pool:
        await evil.lend_one()
        own = await pool.submit({"executable": program(home, "exec sleep 600"), "flock": "false"}, iwd=str(home))
        cluster, order = await job_at(evil, pool, home)
        start, job = order["params"]["start"], [cluster.cluster, 0]
        for wrong in ENDS:
            report = {"cause": "exit", "code": 0, "signal": None, "wall": 1.0, **wrong}
            assert await evil.say(order, "ended", job=job, run=start["run"], report=report) == "BadReport", wrong
        good = {"cause": "exit", "code": 3, "signal": None, "core": False, "wall": 1.0, "junk": "x" * 10_000_000}
        for other in ({"job": [own.cluster, 0], "run": 1}, {"job": [10**9, 0], "run": 1}, {"job": job, "run": 77}):
            await evil.say(order, "ended", **other, report=good)
        for kind in ("nosuch", "usage", "saved", "started"):
            data = {"max_rss": math.nan, "started": "x", "seconds": "x"}
            assert await evil.say(order, "report", run=start["run"], kind=kind, data=data) == "BadReport"
        assert await evil.say(order, "revoked", reason={"family": "Evict", "subcode": "x"}) == "BadReport"
        (ad,) = await cluster.ads()
        assert ad.value("JobStatus") == 2, "nothing that it said was an end"
        for _ in range(3):
            await evil.say(order, "ended", job=job, run=start["run"], report=good)
        (result,) = await cluster.wait(support.PATIENCE, until_stuck=True)
        assert (result.exit_code, result.reason) == (3, ""), result
        (ad,) = await cluster.ads()
        assert ad.value("NumJobStarts") == 1
        (ad,) = await own.ads()
        assert ad.value("JobStatus") in (1, 2), "a job that the evil pool never had goes on"
        await own.remove()
        await own_job_runs(pool, home)
        assert len(lines(chem, "another pool says of a job what makes no sense", evil.name)) == 1
        assert len(json.dumps(poolnode("history", "--json", "-A", chem.address).stdout)) < 1_000_000


async def job_at(evil: EvilPool, pool: Pool, home: Path, **more: str) -> tuple[Any, Wire]:
    """A job that the evil pool is to run; with the order that it got."""
    wish = {"executable": "/bin/true", "requirements": f'FlockPool =?= "{evil.name}"', "log": "log", **more}
    cluster = await pool.submit(wish, iwd=str(home))
    async with asyncio.timeout(support.PATIENCE):
        return cluster, await evil.orders.get()


async def test_reports_without_end_fill_no_log(honest: Nodes, home: Path) -> None:
    """A job stands still and goes on a thousand times in a second, says its startd."""
    chem = honest.all[0]
    async with evil_pool(chem) as evil, client(chem) as pool:
        await evil.lend_one()
        cluster, order = await job_at(evil, pool, home)
        run = order["params"]["start"]["run"]
        for _ in range(500):
            for kind in ("suspended", "continued"):
                await evil.say(order, "report", run=run, kind=kind, data={"why": "x" * 100_000})
        await own_job_runs(pool, home)
        assert (home / "log").stat().st_size < 1_000_000
        assert (home / "log").read_text().count("suspended") < 60
        assert len(lines(chem, "another pool reports of a job too often", evil.name)) == 1
        await cluster.remove()


async def test_a_start_that_it_never_runs_goes_elsewhere(honest: Nodes, home: Path) -> None:
    """It takes the order, and says nothing more: the lease ends, and the job runs at home."""
    chem = honest.all[0]
    async with evil_pool(chem) as evil, client(chem) as pool:
        await evil.lend_one()
        wish = f'FlockPool =?= "{evil.name}" || NumJobStarts > 0'
        cluster, _ = await job_at(evil, pool, home, requirements=wish)
        await own_job_runs(pool, home)
        (result,) = await cluster.wait(support.PATIENCE, until_stuck=True)
        assert result.ok, result
        (ad,) = await cluster.ads()
        assert ad.value("NumJobStarts") == 2
        assert "evil" not in str(ad.value("LastRemoteHost"))


async def test_files_and_checkpoints_of_other_jobs_are_not_given(honest: Nodes, home: Path) -> None:
    """It asks for inputs, images and files by claims of other jobs, and brings outputs and images for them."""
    chem = honest.all[0]
    async with evil_pool(chem) as evil, client(chem) as pool:
        await evil.lend_one()
        (home / "secret").write_text("of another job\n")
        script = program(home, "exec sleep 600")
        own = await pool.submit(
            {"executable": script, "flock": "false", "transfer_input_files": "secret"}, iwd=str(home)
        )
        cluster, order = await job_at(evil, pool, home)
        run = order["params"]["start"]["run"]
        held = order["params"]["claim"]
        for verb, claim, more in (
            *((verb, "invented", {}) for verb in ("fetch_inputs", "store_outputs", "remote_io", "store_image")),
            *(("fetch_inputs", f"x|{held}", {}), ("fetch_image", held, {"generation": 1})),
            *(("fetch_image", held, {"generation": -1}), ("fetch_inputs", held, {"run": 99})),
            *(("store_image", held, {"run": 99}), ("remote_io", held, {}), ("store_outputs", held, {"run": 0})),
        ):
            params = {"claim": claim, "run": run, "job": [own.cluster, 0], **more}
            way = {"schedd": order["schedd"], "startd": STARTD, "verb": verb, "params": params}
            with pytest.raises(RemoteError) as caught:
                await items_of(evil, way)
            assert caught.value.kind != "InternalError", verb
        assert (home / "secret").read_text() == "of another job\n"
        for one in (own, cluster):
            await one.remove()
        await own_job_runs(pool, home)


async def items_of(evil: EvilPool, way: Wire) -> None:
    """Open a stream of a startd's, say what would be a file of an output, and take what comes."""
    async with await evil.back.stream("world_back.stream_back", way) as stream:
        await stream.send(["file", "../secret", 0o777, 3])
        async for item in stream:
            assert "secret" not in str(item)


async def test_answers_that_never_come_keep_no_own_job(honest: Nodes, home: Path) -> None:
    """Requests for its machines hang, a request comes byte by byte, and a frame that it begins never ends."""
    chem = honest.all[0]
    async with evil_pool(chem) as evil, client(chem) as pool:
        await evil.borrow()
        requests = asyncio.Event()

        async def hang(call: Any, params: Wire) -> None:
            requests.set()
            await asyncio.Event().wait()

        evil.answer("world.claim", hang)
        await evil.lend([[f"slot{number}@den", evil.machine] for number in range(5)])
        wish = {"executable": "/bin/true", "requirements": f'FlockPool =?= "{evil.name}"'}
        waiting = await pool.submit(wish, iwd=str(home))
        async with asyncio.timeout(support.PATIENCE):
            await requests.wait()
        host, _, port = evil.credentials.address.removeprefix("tcp://").rpartition(":")
        context: ssl.SSLContext = evil.credentials.client_context()
        sockets = [await asyncio.open_connection(host, int(port), ssl=context) for _ in range(20)]
        for byte in b"\x00\xff\xff\xff\x93\x01\xa5":
            for _, writer in sockets:
                writer.write(bytes([byte]))
            await own_job_runs(pool, home)
        for _, writer in sockets:
            writer.close()
        await waiting.remove()


async def test_it_gets_the_agreement_and_no_more(honest: Nodes, home: Path) -> None:
    """One slot at a time, for alice: and no other user, not a second one, none for a thousand schedds' names."""
    chem = honest.all[0]
    async with evil_pool(chem, "limited") as evil, client(chem) as pool:
        link = await evil.borrow()
        for owner in ("mallory", "alice@chem", "Alice", "alice ", "root"):
            with pytest.raises(RemoteError, match=r"may not run here|cannot be the name of a user"):
                await link.call("world.claim", {**REQUEST, "owner": owner})
        asks = {**REQUEST, "owner": "alice", "count": 10**6}
        answers = await asyncio.gather(*(link.call("world.claim", asks) for _ in range(5)), return_exceptions=True)
        given = [answer for answer in answers if isinstance(answer, dict)]
        assert [len(answer["claims"]) for answer in given] == [1]
        assert all("has its 1 slots here already" in str(no) for no in answers if no not in given)
        (made,) = given[0]["claims"]

        async def owner_there() -> Any:
            ads = {ad.value("Name"): ad for ad in await pool.machines()}
            return ads[made["slot"]].value("RemoteOwner", "")

        assert await asked(owner_there, "the machine to be claimed") == "alice@limited"
        await own_job_runs(pool, home)
        before = psutil.Process(chem.process.pid).num_fds()
        addresses = {str(ad.value("Machine")): str(ad.value("StartdAddress")) for ad in await pool.machines()}
        way = {"startd": addresses["bench"], "verb": "inspect", "params": {"claim": "x", "run": 1}}
        for wave in range((UNUSED + 2 * OTHERS) // 32):
            names = [f"schedd{number}" for number in range(32 * wave, 32 * wave + 32)]
            calls = (link.call("world.pass_call", {"schedd": name, **way}) for name in names)
            refused = {str(no) for no in await asyncio.gather(*calls, return_exceptions=True)}
            assert refused == {"there is no such claim on this machine"}
        await until(
            lambda: psutil.Process(chem.process.pid).num_fds() < before + UNUSED + OTHERS, "connections to be closed"
        )
        await own_job_runs(pool, home)
        with pytest.raises(RemoteError, match="no name of a schedd"):
            await link.call("world.pass_call", {"schedd": "x" * 1000, **way})


async def test_requests_without_end_wait_behind_own_jobs(honest: Nodes, home: Path) -> None:
    """A thousand users of its ask for a machine each, and ads without end are refused."""
    chem = honest.all[0]
    async with evil_pool(chem) as evil, client(chem) as pool:
        link = await evil.borrow()
        ad = {**REQUEST["ad"], "Requirements": ["false"]}
        calls = [
            asyncio.ensure_future(link.call("world.claim", {**REQUEST, "owner": f"u{number}", "ad": ad}))
            for number in range(1000)
        ]
        await own_job_runs(pool, home)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        fat = {**ad, "Env": "x" * 15_000_000}
        before = memory(chem)
        calls = [asyncio.ensure_future(link.call("world.claim", {**REQUEST, "ad": fat})) for _ in range(20)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert all("bytes of a request" in str(answer) for answer in answers), answers
        await own_job_runs(pool, home)
        assert memory(chem) - before < 500


async def test_entries_that_nobody_agreed_to_are_in_no_ledger(honest: Nodes, home: Path) -> None:
    """It signs with its own good key: claims that never were, all the time there is, debts forgiven that nobody has."""
    chem = honest.all[0]
    async with evil_pool(chem) as evil, client(chem) as pool:
        await evil.lend_one()
        async with administrator(chem) as admin:
            await admin.call("world.terms", {"pool": evil.name, "agreement": "credit", "bound": 1000})
        await asked(lambda: _machines(pool, f"@den@{evil.name}@chem", 1), "its machine to be seen")
        key = SigningKey(SigningKey.new_secret())
        terms = {"credit": True, "bound": 1e9, "half_life": 0.0}
        said = await evil.back.call("world_back.credit", {"key": key.public, "terms": terms, "entries": []})
        own_key = said["key"]

        def entry(number: int, **more: Any) -> Wire:
            usual: Wire = {"sequence": 1, "total": 3_600_000, "value": 1000, "at": _now(), "kind": EntryKind.USE}
            made = CreditEntry(key.public, own_key, f"{number:032x}", **{**usual, **more})
            return {"entry": made.to_wire(), "by_lender": key.sign(made.signed_text()), "by_borrower": ""}

        async def answers(*entries: Wire) -> list[Wire]:
            said = {"key": key.public, "terms": terms, "entries": list(entries)}
            return list((await evil.back.call("world_back.credit", said))["answers"])

        uses = await answers(*(entry(number) for number in range(200)))
        assert {one["refused"] for one in uses} == {"this pool has no such claim"}
        settled = await answers(*(entry(number, total=0, kind=EntryKind.SETTLED) for number in range(200)))
        settled += await answers(*(entry(number, total=1000, kind=EntryKind.SETTLED) for number in range(200, 400)))
        assert {one.get("refused") for one in settled} == {"it forgives more than is owed"}
        for wrong in (
            {**entry(1), "by_lender": "ab" * 64},
            {**entry(1), "entry": {**entry(1)["entry"], "total": 2**60}},
            {**entry(1), "entry": {**entry(1)["entry"], "lender": own_key}},
            {**entry(1), "entry": [1]},
        ):
            with pytest.raises(RemoteError) as caught:
                await answers(wrong)
            assert caught.value.kind == "BadEntry"
        other = SigningKey(SigningKey.new_secret()).public
        with pytest.raises(RemoteError, match="another key than before"):
            await evil.back.call("world_back.credit", {"key": other, "terms": terms, "entries": []})
        await own_job_runs(pool, home)
        shown = [json.loads(line) for line in poolnode("flock", "--json", "-A", chem.address).stdout.splitlines()]
        (ledger,) = [one for one in shown if one["pool"] == evil.name]
        assert (ledger["balance"], ledger["history"], ledger["disputed"]) == (0, [], 0)
        assert len(lines(chem, "an entry of another pool was not signed", evil.name)) == 1


def _now() -> int:
    return round(time.time() * 1000)


async def test_one_claim_is_not_given_twice(honest: Nodes, home: Path) -> None:
    """It answers each request with the same claim: one job has it, and no other starts on it."""
    chem = honest.all[0]
    async with evil_pool(chem) as evil, client(chem) as pool:
        await evil.lend_one()
        same = evil.claim()

        async def claim(call: Any, params: Wire) -> Wire:
            return {"claims": [same]}

        evil.answer("world.claim", claim)
        first, order = await job_at(evil, pool, home)
        await evil.offer([["slot2@den", evil.machine]])
        second = await pool.submit({"executable": "/bin/true", "requirements": f'FlockPool =?= "{evil.name}"'})
        await told(chem, "a slot was not to be claimed", why="one of our jobs has already")
        assert evil.orders.empty()
        await own_job_runs(pool, home)
        assert order["params"]["claim"].endswith(same["claim"])
        for one in (first, second):
            await one.remove()


PARTS = """
universe = parallel
executable = /bin/sh
arguments = "-c 'hostname; exec sleep 600'"
transfer_executable = false
should_transfer_files = YES
output = out.$(Node)
error = err.$(Node)
stream_output = true
job_network = private
machine_count = 1
requirements = FlockPool =?= undefined
queue
requirements = FlockPool =?= "{pool}"
queue
"""


async def test_links_of_a_job_to_an_evil_machine_cost_nobody_else(honest: Nodes, home: Path) -> None:
    """Its part of a job has a card full of lies; as a link it sends packets of no sense without end, asks for links
    without end, and for the other part's pipes.
    """
    chem = honest.all[0]
    async with evil_pool(chem) as evil, client(chem) as pool:
        await evil.lend_one()
        heard: list[bytes] = []

        async def floods(call: Any, params: Wire, stream: Any) -> None:
            heard.append(params["params"]["key"])
            await stream.send(bytes(range(32)))  # a key
            while True:
                await stream.send(bytes(100_000))

        evil.answer("world.pass_stream", floods)
        cluster = await pool.submit(PARTS.format(pool=evil.name), iwd=str(home))
        order = await evil.orders.get()
        card = {"network": "private", "node": "chem", "address": chem.address, "large": True}
        for lie in ({"node": "chem@chem"}, {"network": ["private"]}, {"address": "x" * 1_000_000}):
            assert await evil.say(order, "wait_for_parts", run=1, card={**card, **lie}) == "BadReport"
        said = await evil.say(order, "wait_for_parts", run=1, card=card)
        renewing = asyncio.create_task(_renew(evil, order))
        own, its = said["cards"]
        assert own.keys() == {"node", "network", "large"}, "no address"
        assert its == card
        await evil.say(order, "report", run=1, kind="started", data={"started": time.time()})
        await until(lambda: (home / "out.0").exists() and (home / "out.0").read_text() == "rank0\n", "its own part")
        await until(lambda: len(heard) > 1, "links to the evil machine that end")
        assert len(set(heard)) == len(heard), "a key pair of its own for each"

        before, streams = memory(chem), []
        for number in range(600):
            verb, more = ("link_to_part", {"parts": [0], "key": bytes(32)}) if number % 2 else ("pipe_to_part", PIPE)
            told = {"claim": order["params"]["claim"], "run": 1, **more}
            way = {"schedd": order["schedd"], "startd": STARTD, "verb": verb, "params": told}
            streams.append(await evil.back.stream("world_back.stream_back", way))
        refused = await asyncio.gather(*(_refused(stream) for stream in streams))
        assert all(refused), "no key is zero, and the job has no pipes"
        await own_job_runs(pool, home)
        assert memory(chem) - before < 100
        (ad,) = await cluster.ads()
        assert ad.value("JobStatus") == 2
        renewing.cancel()
        await cluster.remove()


async def _renew(evil: EvilPool, order: Wire) -> None:
    """Have a claim last."""
    while True:
        told = {"claims": [order["params"]["claim"]]}
        way = {"schedd": order["schedd"], "startd": STARTD, "verb": "renew", "params": told}
        await evil.back.call("world_back.pass_back", way)
        await asyncio.sleep(1.0)


PIPE = {"part": 0, "stream": 0}


async def _refused(stream: Any) -> bool:
    try:
        async with asyncio.timeout(support.PATIENCE), stream:
            await stream.receive()
    except RemoteError:
        return True
    return False
