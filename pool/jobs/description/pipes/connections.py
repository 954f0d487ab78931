"""The rules of pipes between processes (VS 4.2), as far as they still are rules: see `check`.

Rule 1 is lifted for writers: several may read what one process writes to a file or to stdout, and each gets all of it.
Rule 2 is lifted for files: what a process writes to one it may read from one itself.
"""

from __future__ import annotations

from dataclasses import replace

from pool.decimals import whole_number
from pool.jobs.description.diagnostics import nearest
from pool.jobs.description.job import JobDraft
from pool.jobs.description.pipes import shell_syntax
from pool.jobs.pipes.model import DESCRIPTOR, Joint, PipelineProcess


def unknown(name: str, names: list[str], what: str) -> tuple[str, str]:
    meant = nearest(name, names)
    listed = ", ".join(names)
    return (
        f"{what} {name!r} that 'executable' does not name (VS 3.2, rule 1)",
        f"did you mean {meant}?" if meant else f"the processes are {listed}",
    )


def check(job: JobDraft, joints: list[Joint], made: list[PipelineProcess]) -> None:
    by_name = {process.name.lower(): process for process in made}
    names = [process.name for process in made]
    for index, joint in enumerate(joints):
        for name in (joint.writer, joint.reader):
            if name.lower() not in by_name:
                raise job.refuse("pipe", *unknown(name, names, f"'pipe' has {str(joint)!r}, with a process"))
        joints[index] = replace(
            joint, writer=by_name[joint.writer.lower()].name, reader=by_name[joint.reader.lower()].name
        )
        _check_ends(job, joints[index])
    for joint in joints:
        _check_standard(job, joint, by_name)
    _check_unique(job, joints)


def _check_ends(job: JobDraft, joint: Joint) -> None:
    if joint.writer == joint.reader and not _is_file(joint.writer_file) and not _is_file(joint.reader_file):
        raise job.refuse(
            "pipe",
            f"{str(joint)!r} pipes {joint.writer} to itself without a file, which would never end (VS 4.2, rule 2; G4)",
            "name the program twice (executable = a=PROGRAM b=PROGRAM), or a file: foo > file file > foo",
        )
    for file in (joint.writer_file, joint.reader_file):
        number = whole_number(file.removeprefix(DESCRIPTOR)) if file.startswith(DESCRIPTOR) else 3
        if number is None or not 3 <= number < 256:
            raise job.refuse(
                "pipe", f"{file!r} is no end of a pipe", f"expected {DESCRIPTOR}3 to {DESCRIPTOR}255, or -"
            )


def _check_standard(job: JobDraft, joint: Joint, by_name: dict[str, PipelineProcess]) -> None:
    """Rule 3, and the same for files: what is a pipe cannot be a file as well."""
    writer, reader = by_name[joint.writer.lower()], by_name[joint.reader.lower()]
    for process, file, end, own in (
        (writer, joint.writer_file, "stdout", "output"),
        (reader, joint.reader_file, "stdin", "input"),
    ):
        given = getattr(process, end)
        if not file and given:
            raise job.refuse(
                f"{process.name}.{own}",
                f"the {end} of {process.name} is a pipe ({joint}) and also the file {given!r} (VS 4.2, rule 3)",
                f"leave {process.name}.{own} out",
                other="pipe",
            )
        if not file:
            continue
        path = job.full_path(file, process.iwd)
        for other in ("stdin", "stdout", "stderr"):
            if getattr(process, other) and job.full_path(getattr(process, other), process.iwd) == path:
                raise job.refuse(
                    "pipe",
                    f"{file!r} of {process.name} is mapped to a pipe ({joint}) and also its {other} (VS 4.2, rule 3)",
                )


def _check_unique(job: JobDraft, joints: list[Joint]) -> None:
    """Rule 1 as far as it is still one: a file is read from one pipe, and not also written to another."""
    seen: set[Joint] = set()
    read: dict[tuple[str, str], Joint] = {}
    for joint in joints:
        if joint in seen:
            raise job.refuse("pipe", f"the pipe {str(joint)!r} is given twice (VS 4.2, rule 1; G4)")
        seen.add(joint)
        key = (joint.reader, joint.reader_file)
        if key in read:
            what = repr(joint.reader_file) if joint.reader_file else "stdin"
            raise job.refuse(
                "pipe",
                f"{what} of {joint.reader} is read from two pipes, {str(read[key])!r} and {str(joint)!r}"
                " (VS 4.2, rule 1; G4)",
                "several may read what one writes, but not the other way round",
            )
        read[key] = joint
    for joint in joints:
        other = read.get((joint.writer, joint.writer_file), joint)
        if joint.writer_file and (other.writer, other.writer_file) != (joint.writer, joint.writer_file):
            raise job.refuse(
                "pipe",
                f"{joint.writer_file!r} of {joint.writer} is an end that it writes and one that it reads"
                " (VS 4.2, rule 1; G4)",
            )


def check_short_reads(job: JobDraft, joints: list[Joint], made: list[PipelineProcess]) -> None:
    """A process whose reads may be short reads a file from a pipe: reads of stdin may be short in any case."""
    readers = {joint.reader for joint in joints if _is_file(joint.reader_file)}
    for process in made:
        if process.short_reads and process.name not in readers:
            raise job.refuse(
                f"{process.name}.short_reads",
                f"'{process.name}.short_reads' is for files that a process reads from a pipe, and {process.name}"
                " reads none",
                "leave it out: reads of stdin may be short in any case",
            )


Parts = list[list[str]]


def join_other_part(made: list[PipelineProcess], joints: list[Joint], path: str, parts: Parts) -> None:
    """Join files to a pipe that leads to another part: a cat(1), found at `path`, stands between the two. So files are
    mapped on one machine only, and a plain pipe leads to the other.

    Args:
        parts: the names of the processes that run together; what is put between is added to them.
    """
    place = {name: part for part in parts for name in part}
    for index, joint in enumerate(list(joints)):
        if place[joint.writer] is place[joint.reader]:
            continue
        if _is_file(joint.writer_file):
            name = _insert_process(made, f"{joint.writer}_out", path, (), joint.writer, place, after=True)
            joints.append(Joint(joint.writer, name, joint.writer_file))
            joint = joints[index] = Joint(name, joint.reader, "", joint.reader_file)
        if _is_file(joint.reader_file):
            name = _insert_process(made, f"{joint.reader}_in", path, (), joint.reader, place, after=False)
            joints.append(Joint(name, joint.reader, "", joint.reader_file))
            joints[index] = Joint(joint.writer, name, joint.writer_file)


def _is_file(end: str) -> bool:
    return bool(end) and not end.startswith(DESCRIPTOR)


def _insert_process(
    made: list[PipelineProcess],
    name: str,
    path: str,
    arguments: tuple[str, ...],
    beside: str,
    place: dict[str, list[str]],
    *,
    after: bool,
) -> str:
    """Put a process beside another one, where it runs; never last, for the last one's end is the job's."""
    name = shell_syntax.name_for(name, {process.name for process in made})
    index = next(i for i, process in enumerate(made) if process.name == beside)
    process = PipelineProcess(name, path, arguments, made[index].iwd, carried=False)
    made.insert(index + 1 if after and index + 1 < len(made) else index, process)
    place[beside].append(name)
    place[name] = place[beside]
    return name


def join_readers(made: list[PipelineProcess], joints: list[Joint], path: str, parts: Parts) -> None:
    """Plain ends with several readers: a tee(1), found at `path` where the writer runs, gives each all of it."""
    place = {name: part for part in parts for name in part}
    groups: dict[tuple[str, str], list[Joint]] = {}
    for joint in joints:
        if not joint.writer_file or joint.writer_file.startswith(DESCRIPTOR):
            groups.setdefault((joint.writer, joint.writer_file), []).append(joint)
    for (writer, file), group in groups.items():
        if len(group) < 2:
            continue
        ends = ["", *(f"{DESCRIPTOR}{number}" for number in range(3, 2 + len(group)))]
        name = _insert_process(made, f"{writer}_tee", path, ("-p", *ends[1:]), writer, place, after=True)
        joints[:] = [joint for joint in joints if joint not in group]
        joints.append(Joint(writer, name, file))
        joints += [replace(joint, writer=name, writer_file=end) for joint, end in zip(group, ends, strict=True)]
