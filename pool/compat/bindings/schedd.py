"""The look-alike `Schedd`: submit, query, change and fetch jobs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self

from pool.compat.bindings.ads import LookAd, LookExpr, make_literal, names_of
from pool.compat.bindings.connections import LookIOProblem, LookProblem, call_pool, unable
from pool.compat.bindings.enums import LookJobAction, LookQueryOpt, LookTransactionFlag
from pool.compat.bindings.submit import LookSubmit, LookSubmitResult, statement

_ID = re.compile(r"([0-9]{1,18})(?:\.([0-9]{1,18}))?")
#: Action -> (the pool's action, whether it is forced).
_ACTIONS = {
    LookJobAction.Hold: ("hold", False),
    LookJobAction.Release: ("release", False),
    LookJobAction.Remove: ("remove", False),
    LookJobAction.RemoveX: ("remove", True),
    LookJobAction.Vacate: ("vacate", False),
    LookJobAction.VacateFast: ("vacate", True),
}


def address_of(location: Any) -> str | None:
    """Where the node of a location ad is; None for the user's own."""
    if location is None:
        return None
    for name in ("ScheddAddress", "StartdAddress", "NegotiatorAddress", "MyAddress"):
        if found := location.get(name):
            return str(found)
    raise LookProblem("the location has no address; use what Collector.locate() returned")


def choice(job_spec: Any) -> dict[str, Any]:
    """The parameters of an action for ids, a list of ids, a cluster's number or a constraint.

    Raises:
        TypeError: it is none of these.
    """
    if isinstance(job_spec, bool):
        return {"constraint": str(job_spec).lower()}
    if isinstance(job_spec, int):
        return {"ids": [(job_spec,)]}
    if isinstance(job_spec, LookExpr):
        return {"constraint": repr(job_spec)}
    if isinstance(job_spec, str):
        found = _ID.fullmatch(job_spec.strip())
        return {"ids": [_id(found)]} if found else {"constraint": job_spec}
    if isinstance(job_spec, Iterable):
        matches = [_ID.fullmatch(str(one).strip()) for one in job_spec]
        if all(matches):
            return {"ids": [_id(one) for one in matches if one]}
    raise TypeError("job_spec must be an id, a list of ids, a constraint, or a cluster's number")


def _id(found: re.Match[str]) -> tuple[int, ...]:
    return tuple(int(part) for part in found.groups() if part is not None)


def _constraint(given: Any) -> str | None:
    text = (repr(given) if isinstance(given, LookExpr) else str(given)).strip()
    return None if not text or text.lower() == "true" else text


class LookSchedd:
    """The schedd of a node; `Schedd`.

    Args:
        location_ad: as `Collector.locate` returns it; the user's own node by default.
    """

    def __init__(self, location_ad: Any = None) -> None:
        self._at = address_of(location_ad)

    # ---- asking

    def query(
        self,
        constraint: Any = "true",
        projection: Iterable[str] = (),
        callback: Callable[[LookAd], Any] | None = None,
        limit: int = -1,
        opts: int = LookQueryOpt.Default,
        **old: Any,
    ) -> list[Any]:
        """The ads of queued jobs."""
        if old.get("attr_list"):
            projection = old.pop("attr_list")
        old.pop("requirements", None)
        opts = int(opts)
        if opts & (LookQueryOpt.AutoCluster | LookQueryOpt.GroupBy | LookQueryOpt.IncludeJobsetAds):
            raise unable("this option of query()", "query the jobs and count them")
        if opts & LookQueryOpt.SummaryOnly:
            return [self._summary(constraint)]
        params = self._params(constraint, projection, limit)
        if opts & LookQueryOpt.DefaultMyJobsOnly:
            from pool.client.descriptions import user_name

            params["owner"] = user_name()
        found = [LookAd.of_wire(ad) for ad in call_pool(self._at, "gather", "schedd.query", params)]
        if callback is None:
            return found
        return [answer for answer in map(callback, found) if answer is not None]

    def xquery(
        self, constraint: Any = "true", projection: Iterable[str] = (), limit: int = -1, **named: Any
    ) -> Iterator[Any]:
        """As `query`, one by one."""
        named.pop("name", None)
        return iter(self.query(named.pop("requirements", constraint), projection, limit=limit, **named))

    def history(
        self, constraint: Any = "true", projection: Iterable[str] = (), match: int = -1, since: Any = None, **named: Any
    ) -> Iterator[LookAd]:
        """The ads of jobs that have left the queue, newest first, until `since` (an id, or an expression) is met."""
        constraint = named.pop("requirements", None) or constraint
        params = self._params(constraint, projection, match if since is None else -1)
        if since is not None and "attributes" in params:
            params["attributes"] = list(dict.fromkeys([*params["attributes"], "ClusterId", "ProcId"]))
        ads = (LookAd.of_wire(ad) for ad in call_pool(self._at, "gather", "schedd.history", params))
        if since is None:
            return ads
        return self._until(ads, since, match)

    @staticmethod
    def _until(ads: Iterable[LookAd], since: Any, match: int) -> Iterator[LookAd]:
        given = _ID.fullmatch(str(since))
        ended = LookExpr(str(since)) if given is None else None
        for number, ad in enumerate(ads):
            if number == match:
                return
            if given is not None:
                wanted = _id(given)
                if (ad.get("ClusterId"), ad.get("ProcId"))[: len(wanted)] == wanted:
                    return
            elif ended is not None and ended.eval(ad) is True:
                return
            yield ad

    def _params(self, constraint: Any, projection: Iterable[str], limit: int) -> dict[str, Any]:
        from pool.compat.asking import STANDARD

        params: dict[str, Any] = {}
        if (text := _constraint(constraint)) is not None:
            params["constraint"] = text
        names = names_of(projection)
        spelled = [STANDARD.get(name.lower()) for name in names]
        if names and all(spelled):  # any other name may be spelled otherwise in the ads: then all are asked for
            params["attributes"] = spelled
        if limit >= 0:
            params["limit"] = limit
        return params

    def _summary(self, constraint: Any) -> LookAd:
        counts: dict[int, int] = {}
        params = self._params(constraint, ["JobStatus"], -1)
        for ad in call_pool(self._at, "gather", "schedd.query", params):
            counts[ad.get("JobStatus", 0)] = counts.get(ad.get("JobStatus", 0), 0) + 1
        names = {1: "Idle", 2: "Running", 3: "Removed", 4: "Completed", 5: "Held", 7: "Suspended"}
        ad = LookAd({"MyType": "Summary", "Jobs": sum(counts.values())})
        for state, name in names.items():
            ad[name] = counts.get(state, 0) + (counts.get(6, 0) if state == 2 else 0)
        return ad

    # ---- submitting

    def submit(
        self,
        description: Any,
        count: int = 0,
        spool: bool = False,
        ad_results: list[Any] | None = None,
        itemdata: Iterable[Any] | None = None,
        queue: str | None = None,
    ) -> Any:
        """Queue jobs. A `Submit` gives a `SubmitResult`; an ad, as the older module has it, the cluster's number."""
        if not isinstance(description, LookSubmit):
            return self._submit_ad(description, max(count, 1), spool, ad_results)
        own = queue if queue is not None else description.getQArgs()
        text = description.text(statement(count, itemdata, own))
        clusters = call_pool(self._at, "submit_all", text, spool=True if spool else None)
        if len(clusters) != 1:
            raise LookProblem(f"the description makes {len(clusters)} clusters, not one")
        cluster = clusters[0]
        number, made = int(cluster.cluster), int(cluster.count or 0)
        if ad_results is not None:
            ad_results += self.query(f"ClusterId == {number}")
        return LookSubmitResult(number, made, lambda: self._cluster_ad(number))

    def _cluster_ad(self, number: int) -> LookAd:
        found = call_pool(self._at, "find", [(number,)])
        ad = LookAd.of_wire(found[0]) if found else LookAd({"ClusterId": number})
        ad.pop("ProcId", None)
        return ad

    def _submit_ad(self, description: Any, count: int, spool: bool, ad_results: list[Any] | None) -> int:
        from pool.client.commands import written

        if not isinstance(description, Mapping):
            raise TypeError("a description is a Submit, or an ad")
        ad = LookAd(description)
        known = {
            "cmd": "executable",
            "args": "arguments",
            "arguments": "arguments",
            "in": "input",
            "out": "output",
            "err": "error",
            "userlog": "log",
            "iwd": "initialdir",
            "environment": "environment",
            "transferinput": "transfer_input_files",
            "transferoutput": "transfer_output_files",
            "shouldtransferfiles": "should_transfer_files",
            "whentotransferoutput": "when_to_transfer_output",
            "requestcpus": "request_cpus",
            "requestmemory": "request_memory",
            "requestdisk": "request_disk",
            "requirements": "requirements",
            "jobprio": "priority",
            "jobbatchname": "batch_name",
        }
        set_by_the_queue = {"clusterid", "procid", "jobstatus", "qdate", "owner", "user", "mytype", "targettype"}
        commands: dict[str, str] = {}
        for name in ad:
            key, value = name.lower(), ad[name]
            if key in set_by_the_queue:
                continue
            if key in known:
                text = str(value)
                if key in ("arguments", "environment") and not text.startswith('"'):
                    text = '"' + text.replace('"', '""') + '"'
                commands[known[key]] = text
            else:
                commands[f"+{name}"] = written(f"+{name}", ad.lookup(name).expr)
        result = self.submit(LookSubmit(commands), count, spool, ad_results)
        return int(result)

    def submitMany(self, *arguments: Any, **named: Any) -> int:
        raise unable("submitMany()", "use submit() with itemdata")

    def transaction(self, flags: int = LookTransactionFlag.Default, continue_txn: bool = False) -> LookTransaction:
        """A transaction of the older module: each submit in it is durable by itself."""
        return LookTransaction(self)

    # ---- changing

    def act(self, action: Any, job_spec: Any, reason: Any = None) -> LookAd:
        """Change the state of jobs; returns how many of them were changed, and how many were not."""
        try:
            wanted = LookJobAction(int(action))
        except ValueError:
            raise TypeError("action must be a JobAction") from None
        if wanted not in _ACTIONS:
            raise unable(f"JobAction.{wanted.name}", "JobAction.Vacate takes a job off its machine")
        name, force = _ACTIONS[wanted]
        words = reason[0] if isinstance(reason, tuple) else reason
        chosen = choice(job_spec)
        result = LookAd()
        done = 0
        refused: tuple[tuple[str, str], ...] = ()
        try:
            acted = call_pool(self._at, "act", name, reason=words or "Python-initiated action", force=force, **chosen)
            done, refused = acted.done, acted.refused
        except LookIOProblem as error:
            if "no such job" not in str(error):
                raise
        missing = sum(1 for _, why in refused if "no such job" in why)
        for total, count in (
            ("TotalError", 0),
            ("TotalSuccess", done),
            ("TotalNotFound", missing),
            ("TotalBadStatus", len(refused) - missing),
            ("TotalAlreadyDone", 0),
            ("TotalPermissionDenied", 0),
            ("TotalJobAds", done + len(refused)),
            ("TotalChangedAds", done),
        ):
            result[total] = count
        return result

    def edit(self, job_spec: Any, attr: str, value: Any, flags: int = LookTransactionFlag.Default) -> LookEditResult:
        """Set an attribute of jobs to an expression."""
        text = value if isinstance(value, str) else repr(make_literal(value))
        acted = call_pool(self._at, "act", "edit", attributes={attr: text}, **choice(job_spec))
        if not acted.done:
            raise LookIOProblem(
                f"no jobs match {job_spec}" + "".join(f"; {job}: {why}" for job, why in acted.refused[:3])
            )
        return LookEditResult(acted.done)

    def reschedule(self) -> None:
        """Nothing is to be done: a change of the queue is seen at once."""

    # ---- files

    def spool(self, ad_list: Any) -> None:
        """The files of jobs that were submitted with `spool=True` have gone with them.

        Raises:
            LookProblem: they were not submitted so.
        """
        if isinstance(ad_list, LookSubmitResult):
            numbers = {ad_list.cluster()}
        else:
            numbers = {int(ad["ClusterId"]) for ad in ad_list}
        for number in numbers:
            if call_pool(self._at, "find", [(number,)], ["HoldReasonCode"])[:1] == [{"HoldReasonCode": 16}]:
                raise LookProblem(f"the files of cluster {number} have not come; submit it again with spool=True")

    def retrieve(self, job_spec: Any) -> None:
        """Fetch the outputs of jobs that were submitted with `spool=True`, where the description has them."""
        chosen = choice(job_spec)
        ids = chosen.get("ids")
        if ids is None:
            asked = self._params(chosen["constraint"], ["ClusterId", "ProcId"], -1)
            ids = [(ad["ClusterId"], ad["ProcId"]) for ad in call_pool(self._at, "gather", "schedd.query", asked)]
        fetched = call_pool(self._at, "fetch", ids)
        if fetched.refused:
            raise LookIOProblem("; ".join(f"{job}: {why}" for job, why in fetched.refused[:3]))

    def jobEpochHistory(self, *arguments: Any, **named: Any) -> Iterator[LookAd]:
        raise unable("jobEpochHistory()", "`poolnode why JOB` tells of a job's runs")

    def refreshGSIProxy(self, *arguments: Any, **named: Any) -> int:
        raise unable("refreshGSIProxy()", "a pool of ours has no proxies")

    def export_jobs(self, *arguments: Any, **named: Any) -> LookAd:
        raise unable("export_jobs()", "submit the jobs to the other pool")


class LookEditResult:
    """How many jobs were changed."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __int__(self) -> int:
        return self.count


class LookTransaction:
    """`with schedd.transaction() as txn: submit.queue(txn)` of the older module."""

    def __init__(self, schedd: LookSchedd) -> None:
        self._schedd = schedd
        self.submit = schedd.submit

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is to be done: each submit was durable when it returned."""
