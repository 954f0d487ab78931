"""Jobs of several processes: what `executable`, `pipe` and `process.command` lines make of a job (VS 3.2, 4.2).

The rules that are checked are the paper's semantic rules, with rule 1 of 4.2 lifted for writers: several readers of one
file, or of one stdout, each get all of it. The ad's attributes are `pool.jobs.pipes.model`'s; the job's own `Cmd`,
`Arguments`, `In` are those of its first process, `Out` that of its last.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from pool.decimals import whole_number
from pool.jobs.arguments import QuotingError, join_words, read_arguments
from pool.jobs.description.commands import process_command
from pool.jobs.description.expressions import boolean_of, size_of
from pool.jobs.description.job import JobDraft
from pool.jobs.description.pipes import connections, shell_syntax, spread
from pool.jobs.description.pipes.shell_syntax import PipelineError, ShellLine, Stage
from pool.jobs.description.sections.program import (
    NULL,
    check_readable,
    check_writable,
    checked,
    executable_problem,
)
from pool.jobs.environment import read_environment
from pool.jobs.pipes.model import (
    BUFFER,
    MOST_PIPES,
    MOST_PROCESSES,
    ON_FAILURE,
    PipelineProcess,
    attributes_of,
)

#: Every machine has the programs there; programs of the submitter's own PATH are carried like any other file.
_SYSTEM = frozenset(f"{top}{name}" for top in ("", "/usr", "/usr/local") for name in ("/bin", "/sbin"))
#: The least of a pipe's buffer: what the kernel's own pipes hold.
_LEAST_BUFFER = 65536


def is_multiple(job: JobDraft) -> bool:
    """Whether the description is of a job of several processes: it has `pipe`, a `process.command`, a `|` in
    `executable`, or says `universe = pipe`. A blank in `executable` alone is part of a file's name."""
    if "pipe" in job.written and job.param("pipe"):
        return True
    if any(process_command(name) for name in job.written if "." in name):
        return True
    if (job.param("universe") or "").lower() == "pipe":
        return True
    return "|" in (text := job.param("executable") or "") and shell_syntax.is_pipeline(text)


@dataclass(slots=True)
class _Draft:
    """The job's processes while their commands are gathered."""

    line: ShellLine
    shell: bool
    commands: dict[str, dict[str, str]] = field(default_factory=dict)  # process -> command -> its full name


def processes(job: JobDraft) -> None:
    """All of it."""
    job.several, job.parts = is_multiple(job), ()
    if not job.several:
        return
    draft = _read(job)
    _gather(job, draft)
    made = [_process(job, draft, stage) for stage in draft.line.stages]
    _job_wide(job, made, draft)
    connections.check(job, draft.line.joints, made)
    connections.check_short_reads(job, draft.line.joints, made)
    places, job.apart = spread.parts(job, [process.name for process in made], draft.commands)
    connections.join_readers(made, draft.line.joints, _program(job, "tee")[0], places)
    connections.join_other_part(made, draft.line.joints, _program(job, "cat")[0], places)
    job.parts = places
    if len(made) > MOST_PROCESSES or len(draft.line.joints) > MOST_PIPES:
        raise job.refuse("executable", f"a job has at most {MOST_PROCESSES} processes and {MOST_PIPES} pipes")
    for name, value in attributes_of(made, draft.line.joints).items():
        job.set(name, value)
    first, last = made[0], made[-1]
    ends = (("input", first.stdin, first), ("output", last.stdout, last), ("error", last.stderr, last))
    job.last_files = {command: job.full_path(path, process.iwd) for command, path, process in ends if path}
    job.set("Cmd", first.cmd)
    job.set("Arguments", join_words(first.arguments))
    if not first.carried:
        job.set("TransferExecutable", False)
    on_failure(job)
    _buffer(job)


def _read(job: JobDraft) -> _Draft:
    text = job.param("executable", "Cmd")
    if text is None:
        raise job.refuse(
            "executable", "no executable is named (VS 3.2, rule 2)", "write executable = foo bar before queue"
        )
    if job.param("shell"):
        raise job.refuse("shell", "'shell' is for jobs of one process", "write sh -c '...' in a stage of executable")
    shell = shell_syntax.is_pipeline(text)
    command = "executable"
    try:
        line = shell_syntax.read_shell(text) if shell else shell_syntax.read_list(text)
        command = "pipe"
        line.joints += shell_syntax.read_pipes(job.param("pipe") or "")
    except PipelineError as trouble:
        raise job.refuse(command, trouble.message, trouble.hint, other="Cmd") from None
    if not line.stages:
        raise job.refuse("executable", "no executable is named (VS 3.2, rule 2)")
    return _Draft(line, shell)


def _gather(job: JobDraft, draft: _Draft) -> None:
    """Which process has which command; those of processes that are not there are errors."""
    names = {stage.name.lower(): stage.name for stage in draft.line.stages}
    for written in sorted(job.written):
        found = process_command(written, several=True) if "." in written else None
        if found is None or job.param(written) is None:
            continue
        name = names.get(found[0].lower())
        if name is None:
            if process_command(written) is None:
                continue  # a macro of the user's own
            what = f"'{found[0]}.{found[1]}' is of a process"
            raise job.refuse(written, *connections.unknown(found[0], list(names.values()), what))
        draft.commands.setdefault(name, {})[found[1]] = written


def _process(job: JobDraft, draft: _Draft, stage: Stage) -> PipelineProcess:
    given = draft.commands.get(stage.name, {})

    def text(command: str) -> str:
        return (job.param(given[command]) or "") if command in given else ""

    iwd = job.iwd
    if folder := text("initialdir"):
        iwd = job.full_path(folder)
        if job.check_files and job.files.kind(iwd) != "directory":
            raise job.refuse_path(
                given["initialdir"],
                iwd,
                f"there is no directory {iwd} for '{given['initialdir']}' (VS 3.2, rule 3)",
                "make it first",
            )
    path, carried = _program(job, text("executable") or stage.program)
    if "transfer_executable" in given:
        carried = _truth(job, given["transfer_executable"])
    process = PipelineProcess(
        stage.name,
        path,
        _arguments(job, stage, given.get("arguments", "")),
        iwd,
        stdin=_standard(job, stage, given, "input", "stdin"),
        stdout=_standard(job, stage, given, "output", "stdout"),
        stderr=_standard(job, stage, given, "error", "stderr"),
        append_stdout=stage.append_stdout or ("append_output" in given and _truth(job, given["append_output"])),
        append_stderr=stage.append_stderr or ("append_error" in given and _truth(job, given["append_error"])),
        errors_to_stdout=stage.errors_to_stdout,
        codes_ok=_codes(job, given.get("exit_codes_ok", "")),
        short_reads="short_reads" in given and _truth(job, given["short_reads"]),
        carried=carried,
        inputs=tuple(one.strip() for one in text("transfer_input_files").split(",") if one.strip()),
        environment=_environment(job, given.get("environment", "")),
    )
    if carried and checked(job, path) and (problem := executable_problem(job, path)):
        raise job.refuse("executable", f"process {stage.name}: {problem[0]} (VS 3.2, rule 1)", problem[1], other="Cmd")
    for command, file in (("input", process.stdin), ("output", process.stdout), ("error", process.stderr)):
        if file and checked(job, file):
            check = check_readable if command == "input" else check_writable
            check(job, given.get(command, "executable"), job.full_path(file, iwd))
    return process


def _program(job: JobDraft, program: str) -> tuple[str, bool]:
    """Where a program is, here or as a shell finds it, and whether it goes along: the system's own do not."""
    path = job.full_path(program, job.folder)
    carried = (job.param("transfer_executable", "TransferExecutable") or "t")[0] not in "fF"
    if "/" in program or job.files.kind(path) != "missing":
        return path, carried
    for folder in job.environ.get("PATH", "").split(":"):
        if folder.startswith("/") and job.files.kind(f"{folder}/{program}") == "file":
            return f"{folder.rstrip('/')}/{program}", carried and folder.rstrip("/") not in _SYSTEM
    return path, carried


def _arguments(job: JobDraft, stage: Stage, name: str) -> tuple[str, ...]:
    if not name:
        return tuple(stage.words or ())
    if stage.words:
        raise job.refuse(
            name, f"the arguments of {stage.name} stand in 'executable' and in '{name}'", "leave one of them out"
        )
    try:
        return read_arguments(job.param(name) or "").words
    except QuotingError as trouble:
        raise job.refuse(name, f"'{name}': {trouble.message}", trouble.hint) from None


def _standard(job: JobDraft, stage: Stage, given: dict[str, str], command: str, name: str) -> str:
    written: str = getattr(stage, name)
    if command not in given:
        return "" if written == NULL else written
    if written:
        raise job.refuse(given[command], f"the {name} of {stage.name} is {written!r} in 'executable' already")
    text = job.param(given[command]) or ""
    return "" if text == NULL else text


def _truth(job: JobDraft, name: str) -> bool:
    value = boolean_of(job.param(name) or "")
    if value is None:
        raise job.refuse(name, f"expected true or false for '{name}', not {job.param(name)!r}")
    return value


def _codes(job: JobDraft, name: str) -> tuple[int, ...] | None:
    if not name:
        return None
    words = (job.param(name) or "").replace(",", " ").split()
    codes = {whole_number(word) for word in words}
    if not all(code is not None and code < 256 for code in codes):
        raise job.refuse(name, f"expected exit codes from 0 to 255 for '{name}', not {job.param(name)!r}")
    return tuple(sorted(code for code in codes if code is not None))


def _environment(job: JobDraft, name: str) -> str:
    if not name:
        return ""
    try:
        return read_environment(job.param(name) or "").to_new()
    except QuotingError as trouble:
        raise job.refuse(name, f"'{name}': {trouble.message}", trouble.hint) from None


def _job_wide(job: JobDraft, made: list[PipelineProcess], draft: _Draft) -> None:
    """`input` of the job is the first process's, `output` the last's, `error` of all that name none."""
    if job.param("arguments", "Args") or job.param("argument"):
        raise job.refuse(
            "arguments",
            "'arguments' does not say of which process",
            f"write {made[0].name}.arguments = ...",
            other="argument",
        )
    first, last = made[0], made[-1]
    if (text := job.param("input", "stdin")) and text != NULL:
        _not_both(job, "input", first.name, first.stdin)
        made[0] = replace(first, stdin=text)
    if (text := job.param("output", "stdout")) and text != NULL:
        _not_both(job, "output", last.name, last.stdout)
        made[-1] = replace(made[-1], stdout=text)
    text = job.param("error", "stderr")
    if text and text != NULL:
        made[:] = [one if one.stderr or one.errors_to_stdout else replace(one, stderr=text) for one in made]


def _not_both(job: JobDraft, command: str, name: str, given: str) -> None:
    if given:
        raise job.refuse(
            command, f"'{command}' is given for the job and for its process {name}", "leave one of them out"
        )


def on_failure(job: JobDraft) -> None:
    """`on_process_failure`: what becomes of the job when one of its processes, or of its nodes, fails."""
    text = (job.param("on_process_failure", "OnProcessFailure") or "end").lower()
    if text not in ON_FAILURE:
        raise job.refuse(
            "on_process_failure",
            f"expected end, wait or ignore for 'on_process_failure', not {text!r}",
            other="OnProcessFailure",
        )
    if text != "end":
        job.set("OnProcessFailure", text)


def _buffer(job: JobDraft) -> None:
    text = job.param("pipe_buffer", "PipeBuffer")
    size = size_of(text, 1) if text else None
    if text and (size is None or size.amount < _LEAST_BUFFER):
        raise job.refuse(
            "pipe_buffer", f"expected a size of at least 64 KB for 'pipe_buffer', not {text!r}", other="PipeBuffer"
        )
    job.set("PipeBuffer", size.amount if size else BUFFER)
