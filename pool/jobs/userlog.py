"""Job events as text in the format of HTCondor's event log, so that the readers people have go on working.

An event is a line with number, job, date and what happened, further lines with a tab or four blanks before
them, and a line of three dots. Times are printed in the zone handed in. Only the text is made here; who
appends it to which file is the schedd's affair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, tzinfo
from typing import Any

from pool.jobs.events import NODE_BEGAN, NODE_ENDED, EventKind, JobEvent
from pool.jobs.notice import date, span
from pool.jobs.pipes.model import end_in_words

Data = Mapping[str, Any]

END = "...\n"
_UNITS = {"disk": "Disk (KB)", "memory": "Memory (MB)"}


def render(event: JobEvent, *, host: str = "", zone: tzinfo | None = None) -> str:
    """The event as it stands in a user's log, the line of dots included; one event for each node that it is of.

    Args:
        host: the submit machine, for the SUBMIT event.
        zone: for the date; None is this machine's zone.
    """
    when = datetime.fromtimestamp(event.time, zone).strftime("%Y-%m-%d %H:%M:%S")
    head = f"{event.kind.code:03d} ({event.cluster:03d}.{event.proc:03d}.000) {when} "
    data = event.data
    if event.kind in _NODES:
        fields, body = _NODES[event.kind]
        found = [body(dict(zip(fields, node, strict=False))) for node in data.get("nodes") or ((),)]
        return "".join(head + "".join(f"{line}\n" for line in lines) + END for lines in found)
    if event.kind is EventKind.SUBMIT and "address" not in data:
        data = {**data, "address": host}
    lines = [*_BODIES[event.kind](data), *_account(data, zone)]
    return head + "".join(f"{line}\n" for line in lines) + END


def _submit(data: Data) -> Iterator[str]:
    yield f"Job submitted from host: {_address(data.get('address'))}"
    # Readers take the first such line for the log's notes and the second for the user's.
    if data.get("notes") or data.get("user_notes"):
        yield f"    {_line(data.get('notes'))}"
    if data.get("user_notes"):
        yield f"    {_line(data['user_notes'])}"


def _execute(data: Data) -> Iterator[str]:
    yield f"Job executing on host: {_address(data.get('address') or data.get('slot'))}"
    if data.get("slot"):
        yield f"\tSlotName: {_line(data['slot'])}"


def _checkpointed(data: Data) -> Iterator[str]:
    yield "Job was checkpointed."
    yield from _run_usage(data)
    if "sent" in data:
        yield f"\t{data['sent']:.0f}  -  Run Bytes Sent By Job For Checkpoint"


def _evicted(data: Data) -> Iterator[str]:
    yield "Job was evicted."
    if data.get("requeued"):
        yield "\t(0) Job terminated and was requeued"
    elif data.get("checkpointed"):
        yield "\t(1) Job was checkpointed."
    else:
        yield "\t(0) CPU times"
    yield from _run_usage(data)
    yield from _bytes(data, "Run")
    if data.get("requeued"):
        yield from _exit(data)
    if data.get("why"):
        yield f"\t{_line(data['why'])}"
    yield from _resources(data)
    yield from _network(data)


def _terminated(data: Data) -> Iterator[str]:
    # A job with one run has no totals of its own.
    total = {**data, **{key[6:]: data[key] for key in data if key.startswith("total_")}}
    yield "Job terminated."
    yield from _exit(data)
    yield from _run_usage(data)
    yield f"\t\t{_cpu(total, 'user_cpu', 'system_cpu')}  -  Total Remote Usage"
    yield f"\t\t{_cpu(total, 'local_user_cpu', 'local_system_cpu')}  -  Total Local Usage"
    yield from _bytes(data, "Run")
    yield from _bytes(total, "Total")
    yield from _resources(data)
    yield from _ends(data)
    yield from _network(data)


def _node_execute(data: Data) -> Iterator[str]:
    yield f"Node {_int(data.get('node'))} executing on host: {_address(data.get('slot'))}"
    if data.get("slot"):
        yield f"\tSlotName: {_line(data['slot'])}"


def _node_terminated(data: Data) -> Iterator[str]:
    yield f"Node {_int(data.get('node'))} terminated."
    yield from _exit(data)
    for which in ("Run", "Total"):
        yield f"\t\t{_cpu(data, 'user_cpu', 'system_cpu')}  -  {which} Remote Usage"
        yield f"\t\t{_cpu(data, 'local_user_cpu', 'local_system_cpu')}  -  {which} Local Usage"
    for which in ("Run", "Total"):
        yield from _bytes(data, which, "Node")


def _image_size(data: Data) -> Iterator[str]:
    yield f"Image size of job updated: {_int(data.get('image_size', data.get('max_rss')))}"
    resident = _int(data.get("max_rss"))
    yield f"\t{_int(data.get('memory')) or -(-resident // 1024)}  -  MemoryUsage of job (MB)"
    yield f"\t{resident}  -  ResidentSetSize of job (KB)"


def _shadow_exception(data: Data) -> Iterator[str]:
    yield "Shadow exception!"
    yield f"\t{_line(data.get('why')) or 'no reason given'}"
    yield from _bytes(data, "Run")


def _notice(data: Data) -> Iterator[str]:
    yield _line(data.get("text")) or "notice"


def _aborted(data: Data) -> Iterator[str]:
    yield "Job was aborted."
    if data.get("why"):
        yield f"\t{_line(data['why'])}"


def _suspended(data: Data) -> Iterator[str]:
    yield "Job was suspended."
    yield f"\tNumber of processes actually suspended: {_int(data.get('processes', 1))}"


def _unsuspended(data: Data) -> Iterator[str]:
    yield "Job was unsuspended."


def _held(data: Data) -> Iterator[str]:
    yield "Job was held."
    yield f"\t{_line(data.get('why')) or 'Reason unspecified'}"
    yield f"\tCode {_int(data.get('code'))} Subcode {_int(data.get('subcode'))}"


def _released(data: Data) -> Iterator[str]:
    yield "Job was released."
    if data.get("why"):
        yield f"\t{_line(data['why'])}"


def _disconnected(data: Data) -> Iterator[str]:
    yield "Job disconnected, attempting to reconnect"
    yield f"    {_line(data.get('why')) or 'the execute machine cannot be reached'}"
    yield f"    Trying to reconnect to {_line(data.get('slot')) or 'unknown'} {_address(data.get('address'))}"


def _reconnected(data: Data) -> Iterator[str]:
    yield f"Job reconnected to {_line(data.get('slot')) or 'unknown'}"
    yield f"    startd address: {_address(data.get('address'))}"
    yield f"    starter address: {_address(data.get('address'))}"


def _reconnect_failed(data: Data) -> Iterator[str]:
    yield "Job reconnection failed"
    yield f"    {_line(data.get('why')) or 'the lease has ended'}"
    yield f"    Can not reconnect to {_line(data.get('slot')) or 'unknown'}, rescheduling job"


def _file_transfer(data: Data) -> Iterator[str]:
    what = "output" if data.get("direction") == "out" else "input"
    phase = {"queued": "Entered queue to transfer", "finished": "Finished transferring"}.get(
        str(data.get("phase")), "Started transferring"
    )
    yield f"{phase} {what} files"
    if data.get("queued") is not None:
        yield f"\tSeconds spent in queue: {_int(data['queued'])}"
    if data.get("host"):
        yield f"\tTransferring to host: {_address(data['host'])}"


def _ends(data: Data) -> Iterator[str]:
    """The processes of a job of several. Readers pass over lines behind those they know."""
    for number, end in enumerate(data.get("ends") or ()):
        name = _line(end.get("name"))
        which = f"{name} on {_line(end['host'])}" if end.get("host") else f"Process {number} {name}"
        yield f"\t{which}: {end_in_words(end)}, {_cpu(end, 'user_cpu', 'system_cpu')}"
    if data.get("ends") and data.get("why"):
        yield f"\t{_line(data['why'])}"


def _network(data: Data) -> Iterator[str]:
    """The line about the job's own network. Readers pass over lines behind those they know."""
    if data.get("network"):
        yield f"\tNetwork: {_line(data['network'])}"


def _account(data: Data, zone: tzinfo | None) -> Iterator[str]:
    """The rest of the notice at a job's end (VS 6.3.3). Readers pass over lines behind those they know."""
    if "submitted" not in data:
        return
    factor = data.get("leverage")
    yield f"\tEnd: {_line(data.get('cause'))}"
    yield f"\tSubmitted at: {date(data['submitted'], zone)}"
    yield f"\tEnded at: {date(data.get('ended') or 0.0, zone)}"
    yield f"\tReal Time: {span(data.get('real') or 0.0)}"
    yield f"\tLeveraging Factor: {'-' if factor is None else f'{factor:.1f}'}"
    yield f"\tVirtual Image Size: {_int(data.get('image_size'))} Kilobytes"


_BODIES: dict[EventKind, Callable[[Data], Iterator[str]]] = {
    EventKind.SUBMIT: _submit,
    EventKind.EXECUTE: _execute,
    EventKind.CHECKPOINTED: _checkpointed,
    EventKind.EVICTED: _evicted,
    EventKind.TERMINATED: _terminated,
    EventKind.IMAGE_SIZE: _image_size,
    EventKind.SHADOW_EXCEPTION: _shadow_exception,
    EventKind.NOTICE: _notice,
    EventKind.ABORTED: _aborted,
    EventKind.SUSPENDED: _suspended,
    EventKind.UNSUSPENDED: _unsuspended,
    EventKind.HELD: _held,
    EventKind.RELEASED: _released,
    EventKind.DISCONNECTED: _disconnected,
    EventKind.RECONNECTED: _reconnected,
    EventKind.RECONNECT_FAILED: _reconnect_failed,
    EventKind.FILE_TRANSFER: _file_transfer,
}
_NODES: dict[EventKind, tuple[Sequence[str], Callable[[Data], Iterator[str]]]] = {
    EventKind.NODE_EXECUTE: (NODE_BEGAN, _node_execute),
    EventKind.NODE_TERMINATED: (NODE_ENDED, _node_terminated),
}


def _exit(data: Data) -> Iterator[str]:
    signal = data.get("signal")
    if signal is None:
        yield f"\t(1) Normal termination (return value {_int(data.get('code'))})"
        return
    yield f"\t(0) Abnormal termination (signal {_int(signal)})"
    core = data.get("core")
    if core:
        yield f"\t(1) Corefile in: {_line(core) if isinstance(core, str) else 'core'}"
    else:
        yield "\t(0) No core file"


def _run_usage(data: Data) -> Iterator[str]:
    yield f"\t\t{_cpu(data, 'user_cpu', 'system_cpu')}  -  Run Remote Usage"
    yield f"\t\t{_cpu(data, 'local_user_cpu', 'local_system_cpu')}  -  Run Local Usage"


def _cpu(data: Data, user: str, system: str) -> str:
    return f"Usr {_span(data.get(user))}, Sys {_span(data.get(system))}"


def _span(seconds: Any) -> str:
    minutes, second = divmod(_int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    day, hour = divmod(hours, 24)
    return f"{day} {hour:02d}:{minute:02d}:{second:02d}"


def _bytes(data: Data, which: str, whose: str = "Job") -> Iterator[str]:
    yield f"\t{_int(data.get('sent'))}  -  {which} Bytes Sent By {whose}"
    yield f"\t{_int(data.get('received'))}  -  {which} Bytes Received By {whose}"


def _resources(data: Data) -> Iterator[str]:
    rows = data.get("resources")
    if not rows:
        return
    columns = ["usage", "request", "allocated"]
    if any(row.get("assigned") for row in rows.values()):
        columns.append("assigned")
    table = {
        _UNITS.get(name.lower(), name): [_cell(row.get(column)) for column in columns] for name, row in rows.items()
    }
    name_width = max(20, *(len(name) for name in table))
    widths = [max(9, len(columns[i]), *(len(row[i]) for row in table.values())) for i in range(len(columns))]
    titles = " ".join(column.capitalize().rjust(width) for column, width in zip(columns, widths, strict=True))
    yield f"\t{'Partitionable Resources':<{name_width + 3}} : {titles}"
    for name, row in table.items():
        yield f"\t   {name:<{name_width}} : " + " ".join(
            cell.rjust(width) for cell, width in zip(row, widths, strict=True)
        )


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float) and not value.is_integer():
        return f"{value:.2f}"
    return str(int(value)) if isinstance(value, float) else _line(value)


def _address(value: Any) -> str:
    text = _line(value)
    return text if text.startswith("<") or not text else f"<{text}>"


def _line(value: Any) -> str:
    """One line: what a user or a machine wrote must not be able to end an event early."""
    return "" if value is None else " ".join(str(value).split())


def _int(value: Any) -> int:
    return int(value) if isinstance(value, (int, float)) else 0
