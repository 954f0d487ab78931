"""Changes to jobs by people and by the expressions that they gave at submit: remove, hold, release, vacate, prioritise.

An idle or held job is changed on the spot. A running one is first stopped: the wish is written down with the job,
the startd is asked, and when the end is reported (or the machine is known to be lost) the wish is carried out.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol

from pool.classad import Expr, evaluate, parse_expr
from pool.errors import PoolError
from pool.jobs.events import EventKind
from pool.jobs.privacy import may_see
from pool.jobs.states import Happening
from pool.outside import OutsideWorld
from pool.policy.exits import WATCHED, ExitVerdict, has_periodic, periodic, stays_in_queue
from pool.policy.queue import ACTIVE, COMPLETED, HELD, IDLE, JobId, QueuedCluster, QueuedJob
from pool.roles.cooperative import WorkTurn, WorkTurns
from pool.roles.garbage import LastingGrowth
from pool.roles.schedd.core.job_ends import hold_step, release_step
from pool.roles.schedd.core.ledger import AlikeChange, JobChange, Ledger
from pool.roles.schedd.core.queue_walk import jobs_named, jobs_of, visible_ad
from pool.roles.schedd.submit.alike_jobs import ACTIONS as TOGETHER
from pool.roles.schedd.submit.alike_jobs import FEW, AlikeJobsGathering
from pool.roles.schedd.submit.editing import changes_of, own_of_parts
from pool.roles.schedd.submit.rules import Rules

ACTIONS = ("remove", "hold", "release", "vacate", "checkpoint", "prio", "edit")
#: Jobs changed in one durable step; between steps other work gets its turn.
BATCH = 300
#: Such steps that are being written while the next is thought of.
UNDER_WAY = 3
#: Jobs that an answer names at most: of those for which something was done, and of those for which it was not.
MOST_NAMED = 1000
#: Jobs from which on the memory that an action adds to them is looked at.
MANY = 5000
PRIO_LOW, PRIO_HIGH = -(2**31), 2**31 - 1


class Writing:
    """Steps of one piece of work that are being written, while the next are thought of.

    Args:
        ledger: whose.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._under_way: deque[asyncio.Task[None]] = deque()

    def begin(self, steps: list[JobChange]) -> None:
        """Take steps at once, before anybody does anything else, and begin to write them; `steps` is empty then."""
        if steps:
            taken, steps[:] = list(steps), []
            self._add(self._ledger.begin(*taken))

    def begin_alike(self, step: AlikeChange) -> None:
        """The same for jobs that are changed together."""
        self._add(self._ledger.begin_alike(step))

    def _add(self, writing: Coroutine[Any, Any, None]) -> None:
        self._under_way.append(asyncio.get_running_loop().create_task(writing))

    async def wait(self, left: int = UNDER_WAY) -> None:
        """Wait until at most so many steps are not durable yet."""
        if len(self._under_way) <= left:
            await asyncio.sleep(0)
        while len(self._under_way) > left:
            await asyncio.shield(self._under_way[0])
            self._under_way.popleft()


class Acted:
    """The outcome of an action for the jobs chosen, of which there may be a million: counted, and the first named.

    Args:
        count: how many jobs are done stands in it all the time.
    """

    def __init__(self, count: list[int] | None) -> None:
        self._count = count if count is not None else [0]
        self._jobs: list[JobId] = []
        self._refused: list[dict[str, Any]] = []
        self._owners: set[str] = set()
        self._growth = LastingGrowth()

    def add(self, job: QueuedJob) -> None:
        """It is done for this job."""
        self._count[0] += 1
        self._owners.add(job.cluster.owner)
        if len(self._jobs) < MOST_NAMED:
            self._jobs.append(job.id)
        if self._count[0] == MANY:
            self._growth.begin()

    def add_all(self, jobs: Sequence[QueuedJob]) -> None:
        """It is done for these jobs, which are of one cluster."""
        before = self._count[0]
        self._count[0] += len(jobs)
        self._owners.add(jobs[0].cluster.owner)
        if left := MOST_NAMED - len(self._jobs):
            self._jobs += [job.id for job in jobs[:left]]
        if before < MANY <= self._count[0]:
            self._growth.begin()

    def refuse(self, name: Sequence[int], why: str) -> None:
        """It is not done for the job, or for the cluster, of that name."""
        if len(self._refused) < MOST_NAMED:
            self._refused.append({"id": list(name), "why": why})

    def answer(self) -> dict[str, Any]:
        """The answer of `JobActions.act`, when all is done."""
        self._growth.end()
        return {
            "done": self._count[0],
            "jobs": [list(name) for name in self._jobs],
            "refused": self._refused,
            "owners": sorted(self._owners),
        }


class ChosenJobs:
    """The jobs that an action is done to, and the steps that it takes.

    Args:
        apply: adds what the action does to a job to lists of steps and stops; in words why it does nothing.
        writing: where the steps go.
        together: whether jobs that follow each other and are alike are changed together.
        saves: whether the jobs are to be saved, and no more is done here.

    Attributes:
        stops: jobs that have to be stopped first, with the wishes that follow then.
        saved: jobs that are to be saved.
    """

    def __init__(
        self,
        apply: Callable[[QueuedJob, list[JobChange], list[tuple[QueuedJob, dict[str, Any]]]], str | None],
        writing: Writing,
        acted: Acted,
        *,
        together: bool,
        saves: bool,
    ) -> None:
        self._saves = saves
        self._apply = apply
        self._writing = writing
        self._acted = acted
        self._together = together
        self._gathering = AlikeJobsGathering()
        self._steps: list[JobChange] = []
        self.stops: list[tuple[QueuedJob, dict[str, Any]]] = []
        self.saved: list[QueuedJob] = []

    @property
    def is_full(self) -> bool:
        """Whether the steps in hand are enough for one durable step."""
        return len(self._steps) >= BATCH

    def add(self, job: QueuedJob) -> None:
        """Do it to a job, or gather it with those before it."""
        if self._together and self._gathering.add(job):
            return
        self._change_gathered()
        if not (self._together and self._gathering.add(job)):
            self._change(job)

    def begin_steps(self) -> None:
        """Take all steps in hand, before anybody else does anything."""
        self._change_gathered()
        self._writing.begin(self._steps)

    def _change(self, job: QueuedJob) -> None:
        if why_not := self._apply(job, self._steps, self.stops):
            self._acted.refuse(job.id, why_not)
        elif self._saves:
            self.saved.append(job)
        else:
            self._acted.add(job)

    def _change_gathered(self) -> None:
        jobs = self._gathering.pop_all()
        first: list[JobChange] = []
        if len(jobs) >= FEW and not self._apply(jobs[0], first, []):
            self._writing.begin(self._steps)
            self._writing.begin_alike(AlikeChange.of(first[0], jobs))
            self._acted.add_all(jobs)
            return
        for job in jobs:
            self._change(job)


class StoppableJobs(Protocol):
    """The jobs that run, as far as an action changes them."""

    async def stop(self, job: QueuedJob, wish: dict[str, Any], graceful: bool) -> None:
        """Have a running job stopped; the wish says what follows then."""

    async def checkpoint(self, job: QueuedJob) -> str | None:
        """Have a running job saved now; in words why it was not."""


class JobActions:
    """Changes to jobs by their users.

    Args:
        offer: called with an owner whose jobs have come or gone.
        changed: called when an owner's numbers changed; with True when there is new work.
        keep_checkpoint: keeps the last checkpoint of a job that is to be removed, and answers its name.
        waits_for_inputs: whether inputs of a job have still to arrive from its submitter's machine.
        rules: the administrator's, as they are now.
    """

    def __init__(
        self,
        ledger: Ledger,
        running: StoppableJobs,
        outside: OutsideWorld,
        turns: WorkTurns,
        *,
        offer: Callable[[str], None],
        changed: Callable[[str, bool], None],
        keep_checkpoint: Callable[[QueuedJob], Coroutine[Any, Any, str]],
        waits_for_inputs: Callable[[QueuedJob], bool],
        rules: Callable[[], Rules],
    ) -> None:
        self._rules = rules
        self._keep_checkpoint = keep_checkpoint
        self._waits_for_inputs = waits_for_inputs
        self._ledger = ledger
        self._queue = ledger.queue
        self._running = running
        self._offer = offer
        self._changed = changed
        self._outside = outside
        self._turns = turns
        self._periodic: set[int] | None = None

    async def act(
        self, params: dict[str, Any], only_owner: str | None, asker: str, count: list[int] | None = None
    ) -> dict[str, Any]:
        """Do something to the jobs chosen.

        Args:
            params: {action, ids | constraint | owner | all, reason, value, force, checkpoint}.
            only_owner: whose jobs may be touched; None for an administrator.
            asker: the user who asks; users take turns.
            count: how many jobs are done stands in it all the time.

        Returns:
            {done: count, jobs: [[c, p]...] (at most 1000 named), refused: [{id, why}], owners: [...]}.
        """
        action = str(params.get("action"))
        if action not in ACTIONS:
            raise PoolError(f"cannot {action} jobs", hint=f"possible are {', '.join(ACTIONS)}")
        if action == "prio" and not isinstance(params.get("value"), int):
            raise PoolError("prio needs a whole number")
        acted, writing = Acted(count), Writing(self._ledger)
        by = str(params.get("reason") or "") or f"by {only_owner or 'an administrator'}"
        apply, saves = partial(self._apply_action, action, params, by), action == "checkpoint"
        work = ChosenJobs(apply, writing, acted, together=action in TOGETHER, saves=saves)
        async with self._turns.work(asker, f"{action} jobs") as turn:
            if action == "remove" and params.get("checkpoint"):
                await self._keep_checkpoints(params, only_owner, turn)
            # Nothing may happen to a job between the look at its state and the step that rests on it: no waiting
            # with steps in hand.
            missing: list[Sequence[int]] = []
            for job in self._chosen(params, only_owner, missing):
                if turn.is_over or work.is_full:
                    work.begin_steps()
                    await turn.wait_outside(writing.wait())
                if job is None:
                    while missing:
                        acted.refuse(missing.pop(), "there is no such job in the queue")
                elif not _may_touch(job, only_owner):
                    acted.refuse(job.id, f"it belongs to {job.cluster.owner}")
                elif not self._is_queued(job):
                    acted.refuse(job.id, "it has left the queue")
                else:
                    work.add(job)
            work.begin_steps()
            await turn.wait_outside(writing.wait(0))
        graceful = not params.get("force")
        for start in range(0, len(work.stops), BATCH):
            some = work.stops[start : start + BATCH]
            await asyncio.gather(*(self._stop(job, wish, graceful, asker) for job, wish in some))
        if action == "checkpoint":
            said = await asyncio.gather(*(self._running.checkpoint(job) for job in work.saved))
            for job, why_not in zip(work.saved, said, strict=True):
                if why_not:
                    acted.refuse(job.id, why_not)
                else:
                    acted.add(job)
        return acted.answer()

    async def _keep_checkpoints(self, params: dict[str, Any], only_owner: str | None, turn: WorkTurn) -> None:
        """Keep the last checkpoint of each job that does not run and is to be removed."""
        for job in self._chosen(params, only_owner, []):
            if turn.is_over:
                await turn.pause()
            if job is not None and job.status not in ACTIVE and _may_touch(job, only_owner):
                kept = await turn.wait_outside(self._keep_checkpoint(job))
                job.update({"CheckpointKept": kept or None})

    def _chosen(
        self, params: dict[str, Any], viewer: str | None, missing: list[Sequence[int]]
    ) -> Iterator[QueuedJob | None]:
        """The jobs that ids, a constraint, an owner or `all` name, as `jobs_of` and `jobs_named` give them.

        A constraint sees of a job what the viewer may see; None stands for one that it does not hold for.
        """
        if params.get("ids"):
            return jobs_named(self._queue, params["ids"], missing)
        if not params.get("owner") and not params.get("constraint") and not params.get("all"):
            raise PoolError("no jobs named", hint="name job ids, a user, a constraint, or all")
        jobs = jobs_of(self._queue, params.get("owner"))
        if not params.get("constraint"):
            return jobs
        return self._fitting(jobs, parse_expr(str(params["constraint"]), syntax="old"), viewer)

    def _fitting(
        self, jobs: Iterator[QueuedJob | None], constraint: Expr, viewer: str | None
    ) -> Iterator[QueuedJob | None]:
        now = self._outside.wall()
        for job in jobs:
            if job is None:
                yield None
            else:
                ad = visible_ad(job, not may_see(viewer, job.cluster.owner))
                yield job if _true(evaluate(constraint, ad, None, now)) else None

    def _apply_action(
        self,
        action: str,
        params: dict[str, Any],
        reason: str,
        job: QueuedJob,
        steps: list[JobChange],
        stops: list[tuple[QueuedJob, dict[str, Any]]],
    ) -> str | None:
        """Add what an action does to a job to `steps` or `stops`; in words why it does nothing."""
        active = job.status in ACTIVE
        if job.status == COMPLETED:
            if action != "remove":
                return "it has completed"
            steps.append(JobChange(job, Happening.LEAVE))
        elif action == "remove":
            if active:
                wish = {"what": "remove", "why": reason, "graceful": not params.get("force")}
                stops.append((job, wish | ({"checkpoint": True} if params.get("checkpoint") else {})))
            else:
                steps.append(
                    JobChange(job, Happening.REMOVE, {"RemoveReason": reason}, EventKind.ABORTED, {"why": reason})
                )
        elif action == "hold":
            if job.status == HELD:
                return "it is held already"
            code = int(params.get("code", 1))
            if active:
                stops.append((job, {"what": "hold", "why": reason, "code": code, "graceful": True}))
            else:
                steps.append(hold_step(job, reason, code))
        elif action == "release":
            if job.status != HELD:
                return "it is not held"
            if self._waits_for_inputs(job):
                return "its input files have not all come"
            steps.append(release_step(job, reason))
        elif action == "checkpoint":
            if not active:
                return "it is not running"
            if job.cluster.is_local:
                return "it runs on the submit machine, which nobody takes from it: such jobs are not saved"
        elif action == "vacate":
            if not active:
                return "it is not running"
            stops.append((job, {"what": "vacate", "why": reason, "graceful": not params.get("force")}))
        elif action == "prio":
            value = int(params["value"])
            if not PRIO_LOW <= value <= PRIO_HIGH:
                return "a priority has 32 bits"
            steps.append(JobChange(job, None, {"JobPrio": value}))
            job.update({"JobPrio": value})
            self._queue.edited(job)
        elif action == "edit":
            return self._edit(job, params.get("edits"), steps)
        return None

    def _edit(self, job: QueuedJob, edits: Any, steps: list[JobChange]) -> str | None:
        changes = changes_of(edits)
        if why_not := own_of_parts(job.ad(), changes):
            return why_not
        steps.append(JobChange(job, None, changes, EventKind.NOTICE, {"text": f"Changed: {', '.join(changes)}"}))
        job.update(changes)
        self._queue.edited(job)
        self._queue.admit(job)
        if self._periodic is not None and any(name in changes for name in WATCHED):
            self._periodic.add(job.cluster.id)
        return None

    # -- periodic expressions ----------------------------------------------------------------------------

    def added(self, cluster: QueuedCluster, differing: Collection[str]) -> None:
        """A cluster came in: note whether its jobs have expressions to look at now and again.

        Args:
            differing: attributes in which any of its jobs differs.
        """
        judged = bool(self._rules().periodic) or self._shared(cluster) or any(name in differing for name in WATCHED)
        if self._periodic is not None and judged:
            self._periodic.add(cluster.id)

    def judge_all(self) -> None:
        """The administrator has rules for all jobs now."""
        if self._periodic is not None:
            self._periodic.update(self._queue.clusters)

    async def watch_expressions(self, interval: float) -> None:
        """Evaluate periodic expressions of the jobs that have any, until cancelled (RL 4.1).

        Each user's are looked at in passes of their own, so that dear ones keep nobody else's waiting.
        """
        known = self._queue.clusters.values()
        self._periodic = set()  # from here on those that come in are added
        for cluster in known:
            async with self._turns.work(cluster.owner, "find periodic expressions") as turn:
                if self._rules().periodic or await self._has_any(cluster, turn):
                    self._periodic.add(cluster.id)
        passes: dict[str, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as group:
            while True:
                await asyncio.sleep(interval)
                due: dict[str, list[QueuedCluster]] = {}
                for number in list(self._periodic):
                    found = self._queue.clusters.get(number)
                    if found is None:
                        self._periodic.discard(number)
                    elif found.owner not in passes:
                        due.setdefault(found.owner, []).append(found)
                for owner, clusters in due.items():
                    passes[owner] = group.create_task(self._evaluate_clusters(clusters))
                    passes[owner].add_done_callback(lambda _, owner=owner: passes.pop(owner))  # type: ignore[misc]

    @staticmethod
    async def _has_any(cluster: QueuedCluster, turn: WorkTurn) -> bool:
        if JobActions._shared(cluster):
            return True
        for job in cluster.jobs.values():
            if turn.is_over:
                await turn.pause()
            if job.delta and any(name in job.delta for name in WATCHED):
                return True
        return False

    async def _evaluate_clusters(self, clusters: Iterable[QueuedCluster]) -> None:
        for cluster in clusters:
            await self._evaluate_cluster(cluster)

    @staticmethod
    def _shared(cluster: QueuedCluster) -> bool:
        wire = cluster.wire
        return any(wire.get(name, False) is not False for name in WATCHED) and has_periodic(cluster.ad)

    async def _stop(self, job: QueuedJob, wish: dict[str, Any], graceful: bool, asker: str) -> None:
        """Stop a job that was running a moment ago; one that has lost its machine since is not started again."""
        await self._turns.moment(asker, "stop jobs")
        if job.status in ACTIVE:
            await self._running.stop(job, wish, graceful)
        elif self._is_queued(job) and job.status != COMPLETED:
            steps: list[JobChange] = []
            self._apply_action(wish["what"], wish, wish["why"], job, steps, [])
            await self._ledger.commit(*steps)

    @staticmethod
    def _is_queued(job: QueuedJob) -> bool:
        return job.cluster.jobs.get(job.proc) is job

    async def _let_others(self, turn: WorkTurn, steps: list[JobChange]) -> None:
        """Give the turn up; steps in hand are taken before anybody else does anything, and gone afterwards."""
        if steps:
            taken, steps[:] = list(steps), []
            await turn.wait_outside(self._ledger.commit(*taken))
        else:
            await turn.pause()

    async def judge(self, job: QueuedJob) -> None:
        """Look at the expressions and durations of one job now."""
        steps: list[JobChange] = []
        stops: list[tuple[QueuedJob, dict[str, Any]]] = []
        if self._is_queued(job):
            self._evaluate_job(job, self._outside.wall(), steps, stops)
        await self._carry_out(job.cluster, steps, stops)

    async def _evaluate_cluster(self, cluster: QueuedCluster) -> None:
        now = self._outside.wall()
        steps: list[JobChange] = []
        stops: list[tuple[QueuedJob, dict[str, Any]]] = []
        async with self._turns.work(cluster.owner, "evaluate periodic expressions") as turn:
            for job in cluster.jobs.values():
                if turn.is_over or len(steps) >= BATCH:
                    await self._let_others(turn, steps)
                    self._offer(cluster.owner)
                if self._is_queued(job):
                    self._evaluate_job(job, now, steps, stops)
        await self._carry_out(cluster, steps, stops)

    async def _carry_out(
        self, cluster: QueuedCluster, steps: list[JobChange], stops: list[tuple[QueuedJob, dict[str, Any]]]
    ) -> None:
        if steps:
            await self._ledger.commit(*steps)
            self._offer(cluster.owner)
            self._changed(cluster.owner, any(step.status == IDLE for step in steps))
        for job, wish in stops:
            await self._running.stop(job, wish, True)

    def _evaluate_job(
        self, job: QueuedJob, now: float, steps: list[JobChange], stops: list[tuple[QueuedJob, dict[str, Any]]]
    ) -> None:
        """Evaluate one job's expressions; adds to `steps` and `stops`."""
        if job.status == COMPLETED:
            if not stays_in_queue(job.ad(), now):
                steps.append(JobChange(job, Happening.LEAVE))
            return
        held, ad = job.status == HELD, job.ad()
        decision = periodic(ad, held, now)
        if decision.verdict is ExitVerdict.STAY:
            decision = self._rules().judge(ad, held=held, running=job.status in ACTIVE, now=now)
        if decision.verdict is ExitVerdict.STAY or job.stored_note("_wish"):
            return
        wish = {"why": decision.reason, "code": decision.code, "subcode": decision.subcode, "graceful": True}
        if decision.verdict is ExitVerdict.RELEASE:
            if self._waits_for_inputs(job):
                return
            steps.append(release_step(job, decision.reason))
        elif job.status in ACTIVE:
            wish["what"] = decision.verdict.value
            stops.append((job, wish))
        elif decision.verdict is ExitVerdict.HOLD:
            steps.append(hold_step(job, decision.reason, decision.code, None, decision.subcode))
        else:
            why = decision.reason
            steps.append(JobChange(job, Happening.REMOVE, {"RemoveReason": why}, EventKind.ABORTED, {"why": why}))


def _may_touch(job: QueuedJob, only_owner: str | None) -> bool:
    return only_owner is None or job.cluster.owner == only_owner


def _true(value: Any) -> bool:
    return isinstance(value, (bool, int, float)) and bool(value)
