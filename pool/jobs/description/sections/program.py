"""The program itself: initial directory, executable, arguments, environment, standard files (VS 2.1).

File checks ask whether what is named can be used at all; they are skipped for URLs, for names that hold `$$`
and when the submitter switched them off.
"""

from __future__ import annotations

import os
import re
import struct

from pool.jobs.arguments import Arguments, QuotingError, is_quoted, join_words, read_arguments
from pool.jobs.description.expressions import boolean_of
from pool.jobs.description.job import JobDraft
from pool.jobs.environment import SEPARATOR, Environment, imported, read_environment, written
from pool.jobs.gangs import NODE_MARKS, PARALLEL

NULL = "/dev/null"
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://.")
_PATTERN_BREAK = re.compile(r"[,;\s]+")
_ELF_MACHINES = {3: "INTEL", 62: "X86_64", 183: "AARCH64", 21: "PPC64LE", 243: "RISCV64"}


def is_url(name: str) -> bool:
    """Whether a file name is a URL."""
    return _URL.match(name) is not None


def checked(job: JobDraft, name: str) -> bool:
    """Whether a file of that name is to be looked at when the job is submitted."""
    if not job.check_files or name == NULL or is_url(name) or "$$(" in name:
        return False
    return not job.unchecked


def of_each_node(job: JobDraft, name: str) -> list[str]:
    """A file's name as each node of a parallel job has it; the name alone where all have the same."""
    mark = NODE_MARKS.get(job.nature.universe, NODE_MARKS[PARALLEL])
    if mark not in name:
        return [name]
    nodes = range(1) if job.facts.as_reference else job.nodes
    return [name.replace(mark, str(node)) for node in nodes]


def _same_for_all(job: JobDraft, command: str, name: str | None) -> None:
    """Refuse a node's number in what all nodes of a queue statement have in common."""
    if name and any(mark in name for mark in NODE_MARKS.values()) and not job.facts.as_reference:
        raise job.refuse(
            command,
            f"'{command}' has $(Node), but is the same for all nodes of a queue statement",
            "write a queue statement with its own machine_count for each",
        )


def initial_directory(job: JobDraft) -> None:
    """`initialdir`, where relative names of the job's files begin; `rootdir`, the job's root (VS 2.1)."""
    folder = job.param("initialdir", "Iwd") or job.param("initial_dir", "job_iwd")
    _same_for_all(job, "initialdir", folder)
    job.iwd = job.full_path(folder or job.folder, job.folder)
    skip = job.param("skip_filechecks") or "false"
    truth = False if skip.lower() == "warn" else boolean_of(skip)
    if truth is None:
        raise job.refuse("skip_filechecks", f"expected true, false or warn for 'skip_filechecks', not {skip!r}")
    job.unchecked = truth
    job.set("Iwd", job.iwd)
    for command, path in (("initialdir", job.iwd), ("rootdir", job.param("rootdir", "RootDir"))):
        if path and job.check_files and job.files.kind(path) != "directory":
            raise job.refuse_path(command, path, f"there is no directory {path} for '{command}'", "make it first")


def executable(job: JobDraft) -> None:
    """`executable`: the program, seen from where the description was submitted."""
    nature = job.nature
    _images(job)
    if job.param("shell"):
        job.set("Cmd", "/bin/sh")
        job.set("TransferExecutable", False)
        return
    if job.several:
        return
    name = job.param("executable", "Cmd")
    _same_for_all(job, "executable", name)
    contained = nature.docker or nature.container
    if name is None and not contained:
        if job.lookup("Cmd") is not None:
            return
        raise job.refuse("executable", "no executable is named", "write executable = PROGRAM before queue")
    transfer = (job.param("transfer_executable", "TransferExecutable") or "t")[0] not in "fF"
    if not transfer or name is None:
        job.set("TransferExecutable", False)
        transfer = False
    path = job.full_path(name, job.folder) if transfer and name else name or ""
    job.set("Cmd", path)
    checks = (5, 7, 11, 12) if job.facts.as_reference else (5, 7, 8, 11, 12)
    if transfer and nature.universe in checks and not contained and checked(job, path):
        _check_program(job, path)


def _images(job: JobDraft) -> None:
    docker = (job.param("docker_image", "DockerImage") or "").strip()
    image = (job.param("container_image", "ContainerImage") or "").strip()
    if job.nature.docker or job.nature.container:
        if docker:
            job.set("DockerImage", _bare(docker))
        elif job.nature.docker and job.lookup("DockerImage") is None:
            raise job.refuse("universe", "a docker job needs an image", "write docker_image = NAME")
    if not job.nature.container:
        return
    if image:
        image = _bare(image)
        if not image or image.startswith(("instance://", "library://", "shub://")):
            raise job.refuse("container_image", f"{image!r} is no container image that can be used")
        job.set("ContainerImage", image)
        job.set({"docker": "WantDockerImage", "sif": "WantSIF"}.get(image_kind(image), "WantSandboxImage"), True)
    elif job.lookup("ContainerImage") is None and job.lookup("DockerImage") is None:
        raise job.refuse("universe", "a container job needs an image", "write container_image = NAME")


def image_kind(image: str) -> str:
    """`docker`, `sif` or `folder`: what sort of image a name means."""
    image = image.strip()
    if image.startswith("docker:"):
        return "docker"
    return "sif" if image.endswith(".sif") else "folder"


def _bare(text: str) -> str:
    text = text.strip()
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text


def _check_program(job: JobDraft, path: str) -> None:
    if problem := executable_problem(job, path):
        raise job.refuse("executable", *problem, other="Cmd")


def executable_problem(job: JobDraft, path: str) -> tuple[str, str] | None:
    """Why a file is no program that can be sent, and the way out; None when it is one."""
    kind = job.files.kind(path)
    if kind != "file":
        if closed := job.closed_above(path):
            return closed
        what = "is a directory" if kind == "directory" else "does not exist"
        return f"the executable {path} {what}", "expected a program"
    if not job.files.allowed(path, os.R_OK):
        return job.closed_above(path) or (f"the executable {path} cannot be read", f"chmod u+r {path}")
    if not job.files.allowed(path, os.X_OK):
        return f"{path} is not executable", f"chmod +x {path}"
    head = job.files.head(path, 256)
    if not head:
        return f"the executable {path} is empty", ""
    line = head.split(b"\n", 1)[0]
    if line.startswith(b"#!") and line.endswith(b"\r"):
        return f"the script {path} has line ends of DOS", f"run dos2unix {path}"
    return _machine_problem(job, path, head)


def _machine_problem(job: JobDraft, path: str, head: bytes) -> tuple[str, str] | None:
    if not head.startswith(b"\x7fELF") or len(head) < 20:
        return None
    machine = _ELF_MACHINES.get(struct.unpack("<H" if head[5] == 1 else ">H", head[18:20])[0])
    wanted = job.param("requirements") or ""
    if not machine or machine == job.facts.arch or "arch" in wanted.lower():
        return None
    return (
        f"{path} is a program for {machine}, but would be sent to {job.facts.arch} machines",
        f'write requirements = Arch == "{machine}"',
    )


def arguments(job: JobDraft) -> None:
    """`arguments` in either quoting, or `shell`, a command line for /bin/sh."""
    shell = job.param("shell")
    if job.several:
        return
    if shell:
        job.set(*Arguments(("-c", shell)).attribute())
        return
    words = _argument_words(job, ("arguments", "Args"), "arguments2", ("Args", "Arguments"))
    if words is None:
        return
    if words.old and "arguments" in job.parent and not job.facts.as_reference:
        job.set("Arguments", join_words(words.words))  # which counts where an ad has both
    else:
        job.set(*words.attribute())
    if job.nature.universe == 10 and not words.words:
        raise job.refuse("arguments", "a java job names its main class first", "write arguments = MainClass")


def _argument_words(job: JobDraft, old: tuple[str, str], new: str, written: tuple[str, ...]) -> Arguments | None:
    first, second = job.param(*old), job.param(new)
    if first is None and second is None and old[0] == "arguments":
        first = job.param("argument")  # the papers' spelling
    if first is not None and second is not None and not job.boolean("allow_arguments_v1"):
        raise job.refuse(new, f"'{old[0]}' and '{new}' are both given", "leave one of them out")
    text = first if second is None else second
    if text is None:
        return None if any(job.lookup(name) is not None for name in written) else Arguments(())
    name = old[0] if second is None else new
    if second is not None and not is_quoted(second):
        raise job.refuse(new, f"expected the text of '{new}' in double quotes, not {second!r}")
    try:
        return read_arguments(text)
    except QuotingError as trouble:
        raise job.refuse(name, f"'{name}': {trouble.message}", trouble.hint, other=old[1]) from None


def java_arguments(job: JobDraft) -> None:
    """`java_vm_arguments`: what the Java machine itself is given."""
    words = _argument_words(job, ("java_vm_arguments", "java_vm_args"), "java_vm_arguments2", ("JavaVMArgs",))
    if words is not None and words.words:
        attribute, text = words.attribute()
        job.set("JavaVMArgs" if attribute == "Args" else "JavaVMArguments", text)


def tool_daemon(job: JobDraft) -> None:
    """`tool_daemon_*`: a tool that runs beside the job."""
    if not job.param("tool_daemon_cmd", "ToolDaemonCmd"):
        return
    for end in ("Cmd", "Input", "Output", "Error"):
        if text := job.param(f"tool_daemon_{end.lower()}", f"ToolDaemon{end}"):
            job.set(f"ToolDaemon{end}", text)
    suspended = job.boolean("suspend_job_at_exec", "SuspendJobAtExec")
    if suspended is not None:
        job.set("SuspendJobAtExec", suspended)
    words = _argument_words(
        job, ("tool_daemon_arguments", "tool_daemon_args"), "tool_daemon_arguments2", ("ToolDaemonArgs",)
    )
    if words is not None and words.words:
        attribute, text = words.attribute()
        job.set("ToolDaemonArgs" if attribute == "Args" else "ToolDaemonArguments", text)


def environment(job: JobDraft) -> None:
    """`environment` in either form, and `getenv`, which adds the submitter's own variables.

    A process that writes no environment has that of the cluster's first process.
    """
    first, second = job.param("environment", "env"), job.param("environment2")
    if first and second and not job.boolean("allow_environment_v1"):
        raise job.refuse("environment2", "'environment' and 'environment2' are both given", "leave one out")
    text = second or first
    name = "environment2" if second else "environment"
    if job.parent and not text:
        return
    try:
        found = _inherited(job)
        found.update(read_environment(text) if text else {})
        _import(job, found, restricted=bool(first) and not second)
        prefers_old = bool(first) and not second and (job.param("env") or '"')[:1] != '"'
        has_old, has_new = "env" in job.parent, "environment" in job.parent
        if prefers_old or has_old:
            job.set("Env", found.to_old())
            job.set("EnvDelim", SEPARATOR)
        if not prefers_old or has_new:
            job.set("Environment", found.to_new())
    except QuotingError as trouble:
        raise job.refuse(name, f"'{name}': {trouble.message}", trouble.hint, other="env") from None


def _inherited(job: JobDraft) -> Environment:
    """Variables that the cluster's first process has: a later one adds to them."""
    return written({name: job.parent.get(name.lower()) for name in ("Environment", "Env", "EnvDelim")})


def _import(job: JobDraft, found: Environment, *, restricted: bool) -> None:
    text = job.param("getenv", "get_env")
    if not text:
        return
    truth = boolean_of(text)
    if truth is False:
        return
    patterns = [] if truth else [word for word in _PATTERN_BREAK.split(text) if word]
    for variable, value in imported(job.environ, patterns, old=restricted).items():
        found.setdefault(variable, value)


def standard_input(job: JobDraft) -> None:
    """`input`: what the job reads as its standard input."""
    _standard_file(job, "input", "In", "stdin")


def standard_output(job: JobDraft) -> None:
    """`output`: where the job's standard output goes."""
    _standard_file(job, "output", "Out", "stdout")


def standard_error(job: JobDraft) -> None:
    """`error`: where the job's standard error goes."""
    _standard_file(job, "error", "Err", "stderr")


def _standard_file(job: JobDraft, command: str, attribute: str, other: str) -> None:
    before = job.lookup(f"Transfer{attribute}")
    transfer = before if isinstance(before, bool) else True
    given = job.boolean(f"transfer_{command}", f"Transfer{attribute}")
    changed = given is not None and given != transfer
    transfer = transfer if given is None else given
    stream = job.boolean(f"stream_{command}", f"Stream{attribute}")
    if stream is None:
        stream = job.is_true(f"Stream{attribute}")
    name = job.last_files.get(command) if job.several else job.param(command, other)
    if name or job.lookup(attribute) is None:
        if not name or name == NULL:
            name, transfer, stream = NULL, False, False
        elif transfer and checked(job, name):
            _check_standard_file(job, command, name)
        job.set(attribute, name)
    if not transfer:
        job.set(f"Transfer{attribute}", False)
        return
    job.set(f"Stream{attribute}", stream)
    if changed:
        job.set(f"Transfer{attribute}", True)


def _check_standard_file(job: JobDraft, command: str, name: str) -> None:
    for one in of_each_node(job, name):
        if command == "input":
            check_readable(job, command, job.full_path(one))
        else:
            check_writable(job, command, job.full_path(one))


def check_readable(job: JobDraft, command: str, path: str) -> None:
    """Refuse a file that the submitter cannot read."""
    if job.files.kind(path) == "missing":
        raise job.refuse_path(command, path, f"'{command}' names {path}, which does not exist")
    if not job.files.allowed(path, os.R_OK):
        message = f"'{command}' names {path}, which cannot be read"
        raise job.refuse_path(command, path, message, f"chmod u+r {path}")


def check_writable(job: JobDraft, command: str, path: str) -> None:
    """Refuse a file that the submitter cannot write, or whose directory is not there."""
    kind = job.files.kind(path)
    if kind == "directory":
        raise job.refuse(command, f"'{command}' names {path}, which is a directory", "name a file in it")
    if kind == "missing":
        folder = job.parent_of(path)
        if folder in job.good_folders:
            return
        if job.files.kind(folder) != "directory":
            message = f"the directory {folder} for '{command}' does not exist"
            raise job.refuse_path(command, folder, message, "make it first")
        if not job.files.allowed(folder, os.W_OK):
            message = f"the directory {folder} for '{command}' cannot be written to"
            raise job.refuse_path(command, folder, message)
        job.good_folders.add(folder)
    elif not job.files.allowed(path, os.W_OK):
        raise job.refuse_path(command, path, f"'{command}' names {path}, which cannot be written")
