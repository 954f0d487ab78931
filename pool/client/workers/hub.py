"""The calls and workers of an executor: which worker gets which call, and how many workers there are.

All of it happens in one loop. Workers are jobs: their events say when one has ended, their connections say the rest. A
worker whose connection is lost may be on its way to another machine. The calls that it had not begun go to others at
once; the one that it performed stays its own until it is back, or its job has ended or begun anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import InvalidStateError
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pool.client.ids import job_ids
from pool.client.tally import HELD, OVER
from pool.client.waiting import final_results, follow
from pool.client.workers.futures import CallFuture, JobFailed, QueuedCall
from pool.client.workers.links import WorkerLink
from pool.client.workers.packing import FunctionTable, read_error, read_value
from pool.client.workers.worker import Message
from pool.errors import PoolError
from pool.policy.call_workers import FAILURES, call_to_recall, calls_for_worker, workers_to_end, workers_to_start

if TYPE_CHECKING:
    from pool.client.pool import Pool
    from pool.client.results import Result

#: Seconds between looks at workers that have nothing to do, while there are such: at calls of others, and otherwise.
TIDY_BUSY, TIDY_IDLE = 0.05, 1.0
#: Seconds without a call after which a worker ends, if calls with other commands wait for a machine.
CROWDED = 1.0
#: Seconds after which the call of a worker that was lost begins again elsewhere, if others have nothing to do.
LOST = 30.0


@dataclass(eq=False, slots=True)
class Worker:
    """A worker's job.

    Attributes:
        job: its id. group: the commands of its description, in words.
        link: its connection, None before it has connected or while that is lost.
        calls: what it has to do, the call that it performs first.
        seconds: what a call took lately.
        quiet: since when (loop time) it has sent nothing, or has had nothing to do.
        connected: whether it ever was. recalled: it was told to give back calls, and has not answered.
        ending: it was told to end. blames: if it has ended, its first call is the reason.
        functions: those that it knows.
    """

    job: str
    group: str
    quiet: float
    host: str = ""
    link: WorkerLink | None = None
    calls: dict[int, QueuedCall] = field(default_factory=dict)
    seconds: float | None = None
    connected: bool = False
    recalled: bool = False
    ending: bool = False
    blames: bool = False
    functions: set[int] = field(default_factory=set)


@dataclass(eq=False, slots=True)
class Group:
    """The workers with the same commands, and the calls for them."""

    commands: Mapping[str, Any]
    waiting: deque[QueuedCall] = field(default_factory=deque)
    workers: dict[str, Worker] = field(default_factory=dict)
    submitting: int = 0
    failures: int = 0


class CallHub:
    """See the module.

    Args:
        pool: where worker jobs are queued.
        submit: submits so many workers with these commands; the ids of their jobs.
        least, most: bounds of the number of workers of each group.
        idle: seconds after which a worker without a call ends.
    """

    def __init__(
        self,
        pool: Pool,
        submit: Callable[[Mapping[str, Any], int], Awaitable[list[str]]],
        least: int,
        most: int,
        idle: float,
    ) -> None:
        self._pool = pool
        self._submit = submit
        self._least, self.most, self._idle = least, most, idle
        self._loop = asyncio.get_running_loop()
        self._groups: dict[str, Group] = {}
        self._by_job: dict[str, Worker] = {}
        self._by_link: dict[WorkerLink, Worker] = {}
        self._early: dict[str, tuple[WorkerLink, dict[str, Any]]] = {}
        self._functions = FunctionTable()
        self._calls: dict[int, QueuedCall] = {}
        self._numbers: dict[CallFuture[Any], int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._submits: set[asyncio.Future[list[str]]] = set()
        self._tidying: asyncio.TimerHandle | None = None
        self._closing = False
        self._calm = asyncio.Event()
        self._calm.set()
        self.done = 0

    # -- from the program --------------------------------------------------------------------------------------

    def group(self, key: str, commands: Mapping[str, Any]) -> None:
        """Make a group known, and start its least number of workers."""
        if key not in self._groups:
            self._groups[key] = Group(commands)
            self._grow(key)

    def add(self, calls: list[QueuedCall]) -> None:
        """Take calls."""
        for call in calls:
            if call.future.cancelled():
                continue
            self._calls[call.number] = call
            self._numbers[call.future] = call.number
            self._groups[call.group].waiting.append(call)
        self._calm.clear()
        for key in {call.group for call in calls}:
            self._hand_out(key)
            self._grow(key)
        self._check_calm()

    def cancelled(self, future: CallFuture[Any]) -> None:
        """The future of a call was cancelled."""
        number = self._numbers.pop(future, None)
        if number is None or number not in self._calls:
            return
        call = self._calls.pop(number)
        with contextlib.suppress(ValueError):
            self._groups[call.group].waiting.remove(call)
        worker = self._by_job.get(future.job or "")
        if worker is not None and number in worker.calls and worker.link is not None:
            worker.link.send([("cancel", number)])
        self._check_calm()

    def cancel_all(self) -> None:
        """Cancel every call, also those that run."""
        for call in list(self._calls.values()):
            call.future.cancel()

    def counts(self) -> dict[str, int]:
        """How many calls wait, are with workers, and have ended; and how many workers there are, and are connected."""
        return {
            "waiting": sum(len(group.waiting) for group in self._groups.values()),
            "running": sum(len(worker.calls) for worker in self._by_job.values()),
            "done": self.done,
            "workers": len(self._by_job),
            "connected": len(self._by_link),
        }

    def worker_jobs(self) -> list[tuple[str, str, str, int]]:
        """Of each worker its job, machine, state, and number of calls."""
        return [
            (one.job, one.host, "connected" if one.link else "lost" if one.connected else "starting", len(one.calls))
            for one in self._by_job.values()
        ]

    async def why(self, future: CallFuture[Any]) -> str:
        """In words, where a call is."""
        if future.done():
            return "it has ended"
        call = self._calls.get(self._numbers.get(future, -1))
        if call is None:
            return "it is on its way"
        worker = self._by_job.get(future.job or "")
        if worker is not None and call.number in worker.calls:
            if worker.link is None:
                return f"its worker, job {worker.job}, is not connected\n{await self._pool.why(worker.job)}"
            before = list(worker.calls).index(call.number)
            if before:
                return f"it waits behind {before} calls in job {worker.job} on {worker.host}"
            return f"job {worker.job} performs it on {worker.host}"
        group = self._groups[call.group]
        before = group.waiting.index(call) if call in group.waiting else 0
        words = f"it waits for a worker, behind {before} calls"
        starting = [one.job for one in group.workers.values() if not one.connected]
        return f"{words}; job {starting[0]} would be one:\n{await self._pool.why(starting[0])}" if starting else words

    async def calm(self) -> None:
        """Wait until no call is left."""
        await self._calm.wait()

    async def close(self) -> None:
        """End all workers."""
        self._closing = True
        if self._tidying is not None:
            self._tidying.cancel()
        for worker in self._by_job.values():
            worker.ending = True
            if worker.link is not None:
                worker.link.send([("end",)])
        if self._submits:
            await asyncio.wait(set(self._submits))
            await asyncio.sleep(0)  # the jobs are known then
        for worker in self._by_job.values():
            worker.ending = True
        left = [worker.job for worker in self._by_job.values() if worker.link is None]
        await self._remove(left)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(10.0):
                while self._tasks:
                    await asyncio.wait(set(self._tasks))
        await self._remove(list(self._by_job))
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for link in list(self._by_link):
            link.close()

    # -- from workers ------------------------------------------------------------------------------------------

    def worker_connected(self, link: WorkerLink, facts: dict[str, Any]) -> None:
        """See `links.Listener`."""
        job = str(facts.get("job"))
        worker = self._by_job.get(job)
        if worker is None:
            self._early[job] = link, facts  # its submit has not been answered yet
            return
        if worker.link is not None:
            self._by_link.pop(worker.link, None)
            worker.link.close()
        if tuple(facts.get("python") or ())[:2] != sys.version_info[:2]:
            found, mine = (".".join(map(str, version)) for version in (facts["python"][:2], sys.version_info[:2]))
            self._no_workers(
                worker.group,
                JobFailed(
                    f"the workers' Python is {found}, this program's is {mine}",
                    hint="name one of the same version: Executor(python=...)",
                ),
            )
            link.send([("end",)])
            return
        worker.link, worker.connected, worker.recalled = link, True, False
        worker.host, worker.quiet = str(facts.get("host")), self._loop.time()
        worker.functions.clear()
        self._by_link[link] = worker
        group = self._groups[worker.group]
        group.failures = 0
        has = {facts.get("running"), *(facts.get("held") or ()), *(facts.get("answered") or ())}
        kept = {number: call for number, call in worker.calls.items() if number in has and number in self._calls}
        link.send([("held", list(kept))])
        lost = [call for number, call in worker.calls.items() if number not in kept and number in self._calls]
        worker.calls = kept
        group.waiting.extendleft(reversed(lost))
        self._hand_out(worker.group)

    def worker_sent(self, link: WorkerLink, messages: list[Message], blob: memoryview | None) -> None:
        """See `links.Listener`."""
        worker = self._by_link.get(link)
        if worker is None:
            return
        answers = 0
        for message in messages:
            kind, number = message[0], message[1]
            if kind == "returned":
                self._returned(worker, number)
            elif kind == "progress":
                if (call := worker.calls.get(number)) is not None:
                    with contextlib.suppress(Exception):
                        call.future.progress = read_value(message[2], (), None)
            else:
                answers += 1
                self._answered(worker, message, blob)
        now = self._loop.time()
        if answers:
            each = (now - worker.quiet) / answers
            worker.seconds = each if worker.seconds is None else (worker.seconds + each) / 2
            worker.quiet = now
        self._hand_out(worker.group)
        if not worker.calls:
            self._tidy_later()
        self._check_calm()

    def worker_lost(self, link: WorkerLink) -> None:
        """See `links.Listener`."""
        worker = self._by_link.pop(link, None)
        if worker is None or worker.link is not link:
            return
        worker.link, worker.quiet = None, self._loop.time()
        calls = [call for call in worker.calls.values() if call.number in self._calls]
        # Results of the first ones may be lost with the worker: only a call that was sent by itself is to blame.
        worker.blames = len(calls) == 1 or (bool(calls) and calls[0].suspect)
        for call in calls if len(calls) > 1 else ():
            call.suspect = True
        worker.calls = {call.number: call for call in calls[:1]}
        self._groups[worker.group].waiting.extendleft(reversed(calls[1:]))
        self._hand_out(worker.group)
        self._grow(worker.group)

    def _returned(self, worker: Worker, numbers: list[int]) -> None:
        worker.recalled = False
        back = [worker.calls.pop(number) for number in numbers if number in worker.calls]
        waiting = self._groups[worker.group].waiting
        waiting.extendleft(call for call in reversed(back) if call.number in self._calls)
        self._grow(worker.group)

    def _answered(self, worker: Worker, message: Message, blob: memoryview | None) -> None:
        kind, number = message[0], message[1]
        worker.calls.pop(number, None)
        call = self._calls.pop(number, None)
        if call is None:
            return  # cancelled, or done by another worker after this one was lost
        self._numbers.pop(call.future, None)
        call.future.job, call.future.host = worker.job, worker.host
        self.done += 1
        with contextlib.suppress(InvalidStateError):
            if kind == "value":
                try:
                    value = read_value(message[2], message[3], blob)
                except Exception as error:
                    call.future.set_exception(JobFailed(f"the value from job {worker.job} cannot be read: {error}"))
                else:
                    call.future.set_result(value)
            elif kind == "error":
                call.future.set_exception(read_error(message[2], message[3]))
            else:
                call.future.set_exception(JobFailed(f"the call was interrupted in job {worker.job}"))

    # -- giving calls ------------------------------------------------------------------------------------------

    def _hand_out(self, key: str) -> None:
        group = self._groups[key]
        if not group.waiting:
            return
        able = [one for one in group.workers.values() if one.link is not None and not one.ending]
        able.sort(key=lambda worker: len(worker.calls))
        for share in (1, 0):  # first those that have nothing to do
            for worker in able:
                if not group.waiting:
                    return
                most = 1 if share else calls_for_worker(worker.seconds, len(group.waiting), len(able))
                room = most - len(worker.calls)
                if room > 0 and (share or room * 2 >= most):
                    self._send_calls(worker, group, room)

    def _send_calls(self, worker: Worker, group: Group, room: int) -> None:
        link = worker.link
        assert link is not None
        if not worker.calls:
            worker.quiet = self._loop.time()
        messages: list[Message] = []
        while room > 0 and group.waiting:
            call = group.waiting.popleft()
            if call.number not in self._calls:
                continue
            if call.suspect and worker.calls:
                group.waiting.appendleft(call)
                break
            room = 0 if call.suspect else room - 1
            function, dropped = self._functions.number(call.function)
            if dropped is not None:
                for other in self._by_link.values():
                    other.functions.discard(dropped)
                messages.append(("forget", dropped))
            if function not in worker.functions:
                worker.functions.add(function)
                messages.append(("function", function, call.function))
            worker.calls[call.number] = call
            call.future.job, call.future.host = worker.job, worker.host
            with contextlib.suppress(InvalidStateError, RuntimeError):
                if not call.future.running():
                    call.future.set_running_or_notify_cancel()
            message = ("call", call.number, function, call.mode, call.data, [part.nbytes for part in call.buffers])
            if call.buffers:
                link.send([*messages, message], call.buffers)
                messages = []
            else:
                messages.append(message)
        if messages:
            link.send(messages)
        if len(worker.calls) > 1 and len(group.workers) < self.most:
            self._tidy_later()  # the first may take long, and the others need another worker

    # -- how many workers --------------------------------------------------------------------------------------

    def _grow(self, key: str) -> None:
        if self._closing:
            return
        group = self._groups[key]
        if number := self._workers_to_start(group, len(group.waiting)):
            group.submitting += number
            submit = asyncio.ensure_future(self._submit(group.commands, number))
            self._submits.add(submit)
            self._spawn(self._start(key, number, submit))

    def _workers_to_start(self, group: Group, waiting: int) -> int:
        """How many workers would be started if so many calls waited."""
        starting = group.submitting + sum(not one.connected for one in group.workers.values())
        free = sum(one.link is not None and not one.calls for one in group.workers.values())
        count = len(group.workers) + group.submitting
        return workers_to_start(waiting, starting, free, count, self._least, self.most)

    def _spawn(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _start(self, key: str, number: int, submit: asyncio.Future[list[str]]) -> None:
        group = self._groups[key]
        try:
            jobs = await submit
        except Exception as error:
            self._no_workers(key, error)
            return
        finally:
            self._submits.discard(submit)
            group.submitting -= number
        for job in jobs:
            worker = group.workers[job] = self._by_job[job] = Worker(job, key, self._loop.time())
            if early := self._early.pop(worker.job, None):
                self.worker_connected(*early)
        self._hand_out(key)
        self._tidy_later()
        await self._follow(jobs)

    async def _follow(self, jobs: list[str]) -> None:
        ids = {(int(job.split(".")[0]), int(job.split(".")[1])) for job in jobs}
        cluster = min(ids)[0]
        try:
            async for tally, moved in follow(self._pool, [(cluster,)], sorted(ids)):
                over = sorted(job for job in moved & ids if tally.states[job] in (*OVER, HELD))
                for result in await final_results(self._pool, over, tally) if over else ():
                    if result.is_over or result.state == "held":
                        ids.discard((result.cluster, result.proc))
                        await self._ended(result)
                if not ids:
                    return
        except PoolError as error:
            for job in jobs:
                if (worker := self._by_job.get(job)) is not None and worker.link is None:
                    self._no_workers(worker.group, error)
                    break

    async def _ended(self, result: Result) -> None:
        worker = self._by_job.pop(result.job, None)
        if worker is None:
            return
        group = self._groups[worker.group]
        del group.workers[result.job]
        for _ in range(20):  # its last results may not have been read
            if worker.link is not None:
                await asyncio.sleep(0.01)
        if worker.link is not None:
            worker.link.close()  # which is heard as lost
        if result.state == "held":
            await self._remove([result.job])
        left = [call for call in worker.calls.values() if call.number in self._calls]
        failure = worker_failure(result)
        if left and worker.blames and not worker.ending:
            self._fail(left.pop(0), failure)
        group.waiting.extendleft(reversed(left))
        if not worker.connected and not worker.ending and result.state != "removed":
            group.failures += 1
            if group.failures >= FAILURES or result.state == "held":
                self._no_workers(worker.group, failure)
        self._hand_out(worker.group)
        self._grow(worker.group)
        self._check_calm()

    def _fail(self, call: QueuedCall, error: BaseException) -> None:
        self._calls.pop(call.number, None)
        self._numbers.pop(call.future, None)
        self.done += 1
        with contextlib.suppress(InvalidStateError):
            call.future.set_exception(error)

    def _no_workers(self, key: str, error: BaseException) -> None:
        """No worker comes for this reason: the calls that wait for one fail, unless others work."""
        group = self._groups[key]
        if any(worker.link is not None for worker in group.workers.values()):
            return
        waiting, group.waiting = list(group.waiting), deque()
        for call in waiting:
            if call.number in self._calls:
                self._fail(call, error)
        self._check_calm()

    async def _remove(self, jobs: list[str]) -> None:
        if jobs:
            with contextlib.suppress(PoolError):
                await self._pool.act("remove", ids=job_ids(jobs), reason="the executor needs it no more")

    def _check_calm(self) -> None:
        if not self._calls:
            self._calm.set()

    # -- workers without work ----------------------------------------------------------------------------------

    def _tidy_later(self) -> None:
        if self._tidying is None:
            busy = any(len(worker.calls) > 1 for worker in self._by_job.values())
            self._tidying = self._loop.call_later(TIDY_BUSY if busy else TIDY_IDLE, self._tidy)

    def _tidy(self) -> None:
        self._tidying = None
        now = self._loop.time()
        again = False
        for key, group in self._groups.items():
            self._give_up_lost(group, now)
            online = {one.job: one for one in group.workers.values() if one.link is not None and not one.ending}
            idle = {job: now - one.quiet for job, one in online.items() if not one.calls}
            if not group.waiting:
                counts = {job: len(one.calls) for job, one in online.items() if not one.recalled}
                quiet = {job: now - online[job].quiet for job in counts}
                more = self._workers_to_start(group, ahead := sum(max(count - 1, 0) for count in counts.values()))
                again = again or (ahead > 0 and more > 0)
                if (job := call_to_recall(counts, quiet, len(idle) + more)) is not None:
                    online[job].recalled = True
                    self._send_recall(online[job])
                patience = min(self._idle, CROWDED) if self._others_wait(group) else self._idle
                for job in workers_to_end(idle, len(group.workers), self._least, patience):
                    self._end_worker(online[job])
                useless = [
                    one.job
                    for one in group.workers.values()
                    if not one.connected and not one.ending and now - one.quiet >= self._idle
                ][: max(len(group.workers) - self._least, 0)]
                for job in useless:
                    group.workers[job].ending = True
                if useless:
                    self._spawn(self._remove(useless))
            self._hand_out(key)
            again = again or bool(idle) or any(not one.connected for one in group.workers.values())
        if again:
            self._tidy_later()

    def _others_wait(self, group: Group) -> bool:
        """Whether another group's calls wait for a worker whose job has not found a machine."""
        return any(
            other.waiting and any(not one.connected for one in other.workers.values())
            for other in self._groups.values()
            if other is not group
        )

    def _give_up_lost(self, group: Group, now: float) -> None:
        if group.waiting or not any(one.link is not None and not one.calls for one in group.workers.values()):
            return
        for one in group.workers.values():
            if one.connected and one.link is None and one.calls and now - one.quiet >= LOST:
                group.waiting.extend(call for call in one.calls.values() if call.number in self._calls)
                one.calls = {}

    def _send_recall(self, worker: Worker) -> None:
        if worker.link is not None:
            worker.link.send([("recall",)])

    def _end_worker(self, worker: Worker) -> None:
        worker.ending = True
        if worker.link is not None:
            worker.link.send([("end",)])


def worker_failure(result: Result) -> JobFailed:
    """Why a call has no result: its worker's job has ended."""
    if result.state == "held":
        return JobFailed(f"job {result.job} was held: {result.reason}", result, hint="it was removed")
    if result.state == "removed":
        return JobFailed(f"job {result.job} was removed: {result.reason}", result)
    how = f"signal {result.signal}" if result.signal is not None else f"status {result.exit_code}"
    last = ""
    if result.output:
        with contextlib.suppress(OSError), open(os.path.splitext(result.output)[0] + ".err", errors="replace") as file:
            last = (file.read().strip().splitlines() or [""])[-1][:200]
    return JobFailed(f"job {result.job} ended with {how}{': ' + last if last else ''}", result)
