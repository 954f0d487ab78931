"""The resources that the job needs of a machine: `request_*`, and the demands on GPUs."""

from __future__ import annotations

import re

from pool.jobs.description.diagnostics import nearest
from pool.jobs.description.expressions import (
    ExpressionError,
    in_parentheses_for,
    referenced,
    size_of,
    wire_of,
)
from pool.jobs.description.job import JobDraft
from pool.jobs.huge_pages import HUGE_PAGES, OFF, ON, WISHES
from pool.jobs.network import (
    HOST,
    JOB_NETWORK,
    MODES,
    NONE,
    OUTSIDE,
    OUTSIDE_CONNECTIONS,
    PRIVATE,
    PRIVATE_OUT,
    REFUSE,
    RESET,
)

MEBIBYTE = 1024 * 1024
_COMMANDS = ("request_cpus", "request_memory", "request_disk", "request_gpus")
_OWN_NAMES = frozenset({"requestcpus", "requestdisk", "requestmemory"})
_RUNTIME = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,9}))?")
_MISSPELT = {
    "request_cpu": "request_cpus",
    "request_gpu": "request_gpus",
    "request_gpu_memory": "gpus_minimum_memory",
    "request_gpus_memory": "gpus_minimum_memory",
}
_NOT_IN_MEMORY = "(VacateReasonCode==21 || VacateReasonCode == 34) && VacateReasonSubCode == "
_LINE = "\x1e"


def requests(job: JobDraft) -> None:
    """`request_cpus`, `request_memory`, `request_disk`, `request_gpus` and any other `request_NAME`."""
    for key in sorted(job.macros.table):
        name = job.macros.table[key].name
        if not key.startswith("request_") or key in _COMMANDS:
            continue
        if key in _MISSPELT:
            job.macros.table[key].used = True
            job.warn(name, f"'{name}' is no command and is not used", f"did you mean {_MISSPELT[key]}?")
        elif len(key) >= len("request_") + 2 and key[len("request_")] != "_" and (text := job.param(name)):
            meant = nearest(name, _COMMANDS)
            if meant:
                resource = name[len("request_") :]
                job.warn(name, f"'{name}' asks for a resource '{resource}' of machines", f"did you mean {meant}?")
            job.set_expression(f"Request{name[len('request_') :]}", text, name)
    _cpus(job)
    _gpus(job)
    _sized(job, "request_disk", "RequestDisk", 1024, job.facts.disk)
    _sized(job, "request_memory", "RequestMemory", MEBIBYTE, job.facts.memory)


def network(job: JobDraft) -> None:
    """`job_network`: the machine's network, one of the job's own, or none."""
    text = job.param("job_network", JOB_NETWORK)
    if text is None:
        return
    wish = text.lower()
    if wish not in MODES:
        meant = nearest(wish, MODES)
        raise job.refuse(
            "job_network",
            f"expected {HOST}, {PRIVATE_OUT}, {PRIVATE} or {NONE} for 'job_network', not {text!r}",
            f"did you mean {meant}?" if meant else "",
            other=JOB_NETWORK,
        )
    if wish != NONE and (job.lookup("WantJobNetworking") is False or job.text_of("DockerNetworkType") == NONE):
        raise job.refuse(
            "job_network",
            f"job_network = {wish}, but the description also asks for no network",
            "leave want_job_networking and docker_network_type out",
        )
    job.set(JOB_NETWORK, wish)
    if wish == NONE:
        job.set("WantJobNetworking", False)


def outside_connections(job: JobDraft) -> None:
    """`outside_connections`: whether a job with connections to the outside may be saved; they are reset then."""
    text = job.param("outside_connections", OUTSIDE_CONNECTIONS)
    if text is None:
        return
    wish = text.lower()
    if wish not in OUTSIDE:
        meant = nearest(wish, OUTSIDE)
        raise job.refuse(
            "outside_connections",
            f"expected {REFUSE} or {RESET} for 'outside_connections', not {text!r}",
            f"did you mean {meant}?" if meant else "",
            other=OUTSIDE_CONNECTIONS,
        )
    job.set(OUTSIDE_CONNECTIONS, wish)


def huge_pages(job: JobDraft) -> None:
    """`huge_pages`: whether malloc asks for memory in huge pages."""
    text = job.param("huge_pages", HUGE_PAGES)
    if text is None:
        return
    wish = {"true": ON, "yes": ON, "false": OFF, "no": OFF}.get(text.lower(), text.lower())
    if wish not in WISHES:
        raise job.refuse("huge_pages", f"expected {ON} or {OFF} for 'huge_pages', not {text!r}", other=HUGE_PAGES)
    job.set(HUGE_PAGES, wish)


def _cpus(job: JobDraft) -> None:
    text = job.param("request_cpus", "RequestCpus")
    if text is None and job.lookup("RequestCpus") is None:
        text = "1" if job.nature.grid_type != "batch" else None
    if text and text.lower() != "undefined":
        job.set_expression("RequestCpus", text, "request_cpus", "RequestCpus")


def _sized(job: JobDraft, command: str, attribute: str, unit: int, default: str) -> None:
    text = job.param(command, attribute)
    if text is None:
        if job.lookup(attribute) is None and job.nature.grid_type != "batch":
            job.set_expression(attribute, default, command)
        return
    size = size_of(text, unit, several=True)
    if size is None:
        if text.lower() != "undefined":
            job.set_expression(attribute, text, command, attribute)
        return
    job.set(attribute, size.amount)
    _retry(job, command, attribute, unit, size.rest)


def _retry(job: JobDraft, command: str, attribute: str, unit: int, more: str) -> None:
    """The larger request of a job that was evicted because it had too little."""
    increase = ceiling = None
    if not more:
        more = job.param(f"retry_{command}") or ""
    if not more and attribute == "RequestMemory":
        ceiling = job.param("retry_request_memory_max")
        increase = job.param("retry_request_memory_increase")
        more = ceiling or ""
    if not more and not increase:
        return
    numbers: list[int] = []
    rest = more.strip()
    while rest and (size := size_of(rest, unit, several=True)):
        numbers.append(size.amount)
        rest = size.rest.strip()
    if any(b <= a for a, b in zip([0, *numbers], numbers, strict=False)) and len(numbers) > 1:
        raise job.refuse(command, f"expected values that grow for '{command}', not {more!r}")
    last = _shaped(job, command, rest) if rest else str(numbers.pop()) if numbers else ""
    body = _plan(job, attribute, numbers, last, increase, bool(rest), unit)
    code = "102" if attribute == "RequestMemory" else "104"
    job.set(f"TransformBody_{attribute}", f"REQUIREMENTS {_NOT_IN_MEMORY}{code}{_LINE}{body}")
    named = job.text_of("TransformOnEvict").split()
    if attribute not in named:
        job.set("TransformOnEvict", " ".join([*named, attribute]))


def _shaped(job: JobDraft, command: str, text: str) -> str:
    try:
        value = wire_of(text)
    except ExpressionError as trouble:
        raise job.refuse(
            command, f"expected a size or an expression for '{command}', not {text!r}: {trouble}"
        ) from None
    return value[0] if isinstance(value, list) else text


def _plan(
    job: JobDraft, attribute: str, numbers: list[int], last: str, increase: str | None, is_text: bool, unit: int
) -> str:
    if numbers:
        job.set_expression(
            f"Retry{attribute}", "{" + ",".join([*map(str, numbers), last]) + "}", "request_memory", attribute
        )
        index = f"Retry{attribute}Index"
        return (
            f"EVALSET {attribute} Retry{attribute}[{index}?:0]{_LINE}"
            f"EVALSET {index} MIN({{size(Retry{attribute})-1, ({index}?:0)+1}})"
        )
    if not increase:
        return f"{'EVALSET' if is_text else 'SET'} {attribute} {last}"
    step = size_of(increase, unit)
    if step is not None and step.amount <= 0:
        raise job.refuse("retry_request_memory_increase", f"expected a positive amount, not {increase!r}")
    text = f"{attribute} + {step.amount}" if step else increase
    if step is None and attribute.lower() not in referenced(text, frozenset())[1]:
        raise job.refuse(
            "retry_request_memory_increase",
            f"expected an amount or an expression of {attribute}, not {increase!r}",
        )
    if last:
        job.set_expression(f"Max{attribute}", last, "retry_request_memory_max")
        job.set_expression(f"Next{attribute}", text, "retry_request_memory_increase")
        return f"EVALSET {attribute} MIN({{Next{attribute}, Max{attribute}}})"
    amount = job.lookup(attribute)
    if step is None or not isinstance(amount, int):
        raise job.refuse("retry_request_memory_increase", "expected an amount that is known at submission")
    return f"SET {attribute} {amount + step.amount}"


def _gpus(job: JobDraft) -> None:
    text = job.param("request_gpus", "RequestGPUs")
    if text and text.lower() != "undefined":
        job.set_expression("RequestGPUs", text, "request_gpus", "RequestGPUs")
    if job.lookup("RequestGPUs") is None:
        return
    for command, attribute in (
        ("require_gpus", "RequireGPUs"),
        ("gpus_minimum_capability", "GPUsMinCapability"),
        ("gpus_maximum_capability", "GPUsMaxCapability"),
    ):
        if text := job.param(command, attribute):
            job.set_expression(attribute, text, command, attribute)
    if text := job.param("gpus_minimum_memory", "GPUsMinMemory"):
        size = size_of(text, MEBIBYTE)
        if size:
            job.set("GPUsMinMemory", size.amount)
        else:
            job.set_expression("GPUsMinMemory", text, "gpus_minimum_memory", "GPUsMinMemory")
    if text := job.param("gpus_minimum_runtime", "GPUsMinRuntime"):
        _runtime(job, text)


def _runtime(job: JobDraft, text: str) -> None:
    found = _RUNTIME.fullmatch(text.strip())
    if not found or int(found[2] or 0) >= 100:
        job.set_expression("GPUsMinRuntime", text, "gpus_minimum_runtime", "GPUsMinRuntime")
        return
    major = int(found[1])
    whole = found[2] is None and major > 1000
    job.set("GPUsMinRuntime", major if whole else major * 1000 + int(found[2] or 0) * 10)


def gpu_demands(job: JobDraft) -> None:
    """Fold the limits on GPUs into RequireGPUs, unless it speaks of the same property itself."""
    if job.lookup("RequestGPUs") is None:
        return
    required = job.lookup("RequireGPUs")
    text = required[0] if isinstance(required, list) else "" if required is None else str(required).lower()
    job_names, machine_names = referenced(text, frozenset())
    spoken = job_names | machine_names
    clauses = [
        f"{prop} {operator} {attribute}"
        for attribute, prop, operator in (
            ("GPUsMinCapability", "Capability", ">="),
            ("GPUsMaxCapability", "Capability", "<="),
            ("GPUsMinMemory", "GlobalMemoryMb", ">="),
            ("GPUsMinRuntime", "MaxSupportedVersion", ">="),
        )
        if job.lookup(attribute) is not None and prop.lower() not in spoken
    ]
    if not clauses:
        return
    if text:
        clauses.insert(0, in_parentheses_for("&&", text))
    job.set_expression("RequireGPUs", " && ".join(clauses), "require_gpus", "RequireGPUs")


def requested(job: JobDraft) -> list[str]:
    """The attributes `RequestNAME` beyond CPUs, disk and memory, in order of their names."""
    if any(key.startswith("request") for key in job.varying):
        job.varies = True
    keys = {
        key
        for key in (*job.own, *job.parent)
        if key.startswith("request") and len(key) >= len("request") + 2 and key[len("request")] != "_"
    }
    return [job.names[key] for key in sorted(keys - _OWN_NAMES)]
