"""A node that only remembers: the methods users call, over the real wire, with no pool behind them.

A test drives it by events of a job. It keeps the order that the real schedd keeps: a job's ad has moved before its
event is sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from pool.errors import PoolError
from pool.wire import Call, Dispatcher, Right, Service, Stream, method, streaming

Ad = dict[str, Any]
JobId = tuple[int, int]


class FakeSchedd(Service):
    """Keeps jobs and events; nothing ever runs by itself, unless `runs` says how jobs exit."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs: dict[JobId, Ad] = {}
        self.ended: dict[JobId, Ad] = {}
        self.told: list[dict[str, Any]] = []
        self.news = asyncio.Event()
        self.submitted: list[dict[str, Any]] = []
        self.acted: list[dict[str, Any]] = []
        self.asked: list[dict[str, Any]] = []
        self.output: dict[JobId, bytes] = {}
        self.runs: int | None = None
        self.users: list[dict[str, Any]] = []
        self.reasons: dict[JobId, dict[str, Any]] = {}
        self.clusters = 0
        self.acting: Callable[[Call, dict[str, Any]], Awaitable[dict[str, Any]]] | None = None

    # ---- what happens ----

    def add(self, cluster: int, proc: int, **more: Any) -> None:
        self.jobs[cluster, proc] = {
            "ClusterId": cluster,
            "ProcId": proc,
            "Owner": "alice",
            "QDate": 731_439_360,
            "JobStatus": 1,
            "JobPrio": 0,
            "ImageSize": 1740,
            "Cmd": "/home/p/sim",
            "Args": f"--seed {proc}",
            "Requirements": ['TARGET.Arch == "SPARC" && TARGET.OpSys == "SUNOS41"'],
            "Out": f"out.{proc}",
            "Iwd": "/home/p",
            **more,
        }

    def event(self, job: JobId, kind: str, **data: Any) -> None:
        self.told.append(
            {
                "number": len(self.told) + 1,
                "cluster": job[0],
                "proc": job[1],
                "kind": kind,
                "time": 0.0,
                "data": data,
            }
        )
        news, self.news = self.news, asyncio.Event()
        news.set()

    def start(self, job: JobId) -> None:
        self.jobs[job] |= {"JobStatus": 2, "RemoteHost": "slot1@donder"}
        self.event(job, "EXECUTE", host="slot1@donder")

    def finish(self, job: JobId, code: int = 0) -> None:
        ad = self.jobs.pop(job)
        self.ended[job] = ad | {
            "JobStatus": 4,
            "ExitCode": code,
            "ExitBySignal": False,
            "CompletionDate": 731_442_960,
            "RemoteWallClockTime": 2.0,
            "RemoteUserCpu": 1.0,
            "RemoteSysCpu": 0.5,
            "LastRemoteHost": "slot1@donder",
        }
        self.event(job, "TERMINATED", code=code)

    def hold(self, job: JobId, reason: str) -> None:
        self.jobs[job] |= {"JobStatus": 5, "HoldReason": reason}
        self.event(job, "HELD", reason=reason)

    def remove(self, job: JobId) -> None:
        self.ended[job] = self.jobs.pop(job) | {"JobStatus": 3, "RemoveReason": "by alice"}
        self.event(job, "ABORTED")

    # ---- what is asked ----

    def chosen(self, params: dict[str, Any], jobs: dict[JobId, Ad]) -> Iterator[Ad]:
        ids = params.get("ids")
        for (cluster, proc), ad in jobs.items():
            if ids and [cluster] not in ids and [cluster, proc] not in ids:
                continue
            if params.get("owner") and ad["Owner"] != params["owner"]:
                continue
            wanted = params.get("attributes")
            yield {name: ad[name] for name in wanted if name in ad} if wanted else ad

    async def listing(self, params: dict[str, Any], jobs: dict[JobId, Ad], stream: Stream) -> None:
        self.asked.append(params)
        ads = list(self.chosen(params, jobs))
        for start in range(0, len(ads), 500):
            await stream.send(ads[start : start + 500])
        await stream.finish()

    @method(Right.SUBMIT)
    async def reserve(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        self.clusters += 1
        return {"cluster": self.clusters}

    @method(Right.SUBMIT)
    async def submit(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        self.submitted.append(params)
        if params["ad"].get("Cmd") == "/bin/refused":
            raise PoolError("cannot queue: alice has too many jobs", hint="remove some")
        cluster = params.get("cluster")
        if cluster is None:
            self.clusters += 1
            cluster = self.clusters
        for proc in range(params["count"]):
            delta = params["deltas"][proc] if params["deltas"] else {}
            self.add(
                cluster,
                proc,
                **{**params["ad"], **(delta or {}), "JobStatus": params["ad"].get("JobStatus", 1)},
            )
        if self.runs is not None:
            for proc in range(params["count"]):
                self.start((cluster, proc))
                self.finish((cluster, proc), self.runs)
        return {"cluster": cluster, "count": params["count"]}

    @streaming(Right.READ)
    async def query(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        await self.listing(params, self.jobs, stream)

    @streaming(Right.READ)
    async def history(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        await self.listing(params, self.ended, stream)

    @method(Right.READ)
    async def summary(self, call: Call, params: dict[str, Any]) -> list[dict[str, Any]]:
        return self.users

    @method(Right.READ)
    async def why(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        job = (params["id"][0], params["id"][1])
        if job not in self.reasons:
            raise PoolError(f"there is no job {job[0]}.{job[1]}", hint="`poolnode q` lists jobs")
        return self.reasons[job]

    @streaming(Right.SUBMIT)
    async def act_stream(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        await stream.send(await self.act(call, params))
        await stream.finish()

    @method(Right.SUBMIT)
    async def act(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        self.acted.append(params)
        if self.acting is not None:
            return await self.acting(call, params)
        refused = [
            {"id": list(job), "why": "it belongs to bob"} for job in self.jobs if self.jobs[job]["Owner"] == "bob"
        ]
        done = [job for job in self.jobs if self.jobs[job]["Owner"] != "bob"]
        if params["action"] == "remove":
            for job in done:
                self.remove(job)
        return {"done": len(done), "refused": refused}

    @streaming(Right.READ)
    async def watch(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        sent = int(params.get("after") or 0)
        ids = params.get("ids")
        while True:
            news = self.news
            fresh = self.told[sent:]
            sent = len(self.told)
            chosen = [e for e in fresh if not ids or [e["cluster"]] in ids or [e["cluster"], e["proc"]] in ids]
            await stream.send(chosen)
            await news.wait()

    @streaming(Right.READ)
    async def follow(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        watches: dict[int, tuple[Any, int]] = {}

        async def read() -> None:
            async for message in stream:
                if "close" in message:
                    del watches[message["close"]]
                    continue
                after = len(self.told) if message["after"] is None else message["after"]
                watches[message["watch"]] = message["ids"], after
                await tell(message["watch"], marker=True)

        async def tell(number: int, *, marker: bool = False) -> None:
            ids, sent = watches[number]
            fresh = [e for e in self.told if e["number"] > sent]
            chosen = [e for e in fresh if not ids or [e["cluster"]] in ids or [e["cluster"], e["proc"]] in ids]
            watches[number] = ids, len(self.told)
            items = [[number, len(self.told), chosen]] if chosen else []
            if items or marker:
                await stream.send(items + ([[number, len(self.told), []]] if marker else []))

        reading = asyncio.ensure_future(read())
        try:
            while True:
                news = self.news
                for number in list(watches):
                    await tell(number)
                await news.wait()
        finally:
            reading.cancel()

    @streaming(Right.SUBMIT)
    async def tail(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        job = (params["id"][0], params["id"][1])
        if job not in self.jobs and job not in self.ended:
            raise PoolError(f"there is no job {job[0]}.{job[1]}", hint="`poolnode q` lists them")
        offset = params["offset"]
        if params["lines"] is not None:
            whole = self.output.get(job, b"")
            offset = len(whole) - len(b"".join(whole.splitlines(keepends=True)[-params["lines"] :]))
            if params.get("with_offset"):
                await stream.send(offset)
        while True:
            news = self.news
            text = self.output.get(job, b"")[offset:]
            offset += len(text)
            if text:
                await stream.send(text)
            if not params["follow"] or job in self.ended:
                break
            await news.wait()
        await stream.finish()


class FakeCollector(Service):
    """Remembers its events."""

    def __init__(self) -> None:
        super().__init__()
        self.ads: dict[str, list[Ad]] = {}

    @streaming(Right.READ)
    async def query(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        wanted = params.get("attributes")
        ads = self.ads.get(params["type"], [])
        for start in range(0, len(ads), 500):
            batch = ads[start : start + 500]
            await stream.send([{n: ad[n] for n in wanted if n in ad} for ad in batch] if wanted else batch)
        await stream.finish()


class FakeNode(Service):
    """Says who it is."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens: list[dict[str, Any]] = []

    @method(Right.READ)
    async def ping(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        return {}

    @method(Right.READ)
    async def info(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        return {
            "node": "donder",
            "filesystem_domain": "lab.example",
            "roles": ["collector", "schedd"],
            "address": "here",
        }

    @method(Right.READ)
    async def settings(self, call: Call, params: dict[str, Any]) -> list[dict[str, Any]]:
        return [
            {"name": "START", "value": "KeyboardIdle > 900", "source": "/etc/poolnode.conf:12"},
            {"name": "CLAIM_LEASE", "value": "2400", "source": "default"},
        ]

    @method(Right.ADMINISTER)
    async def token(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        self.tokens.append(params)
        return {"token": "join-abc"}


class Fakes:
    """The three of them and a dispatcher."""

    def __init__(self) -> None:
        self.schedd = FakeSchedd()
        self.collector = FakeCollector()
        self.node = FakeNode()
        self.dispatcher = Dispatcher()
        self.dispatcher.add("schedd", self.schedd)
        self.dispatcher.add("collector", self.collector)
        self.dispatcher.add("node", self.node)
