"""The statements of a DAG file: for each a function that changes the work flow, in one table."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pool.decimals import clipped_number
from pool.jobs.dag.lines import DagLine, split_variables
from pool.jobs.dag.model import DagNode, DagScript, DotFile, NodeKind, NodeVariable, ScriptKind, StatusFile
from pool.jobs.dag.scope import DagScope, StatementError
from pool.jobs.description.macros import is_name

Handler = Callable[[DagScope, DagLine, list[str]], None]

#: Statements that name nodes are read when all nodes of their file are known.
FIRST: dict[str, Handler] = {}
SECOND: dict[str, Handler] = {}
#: Words of the language that are refused, and why.
REFUSED = {
    "DATA": "Stork's data nodes left DAGMan long ago: describe the transfer as a JOB",
    "STORK": "Stork's data nodes left DAGMan long ago: describe the transfer as a JOB",
}
#: Statements about the DAG as a whole, which only its first file may make.
WHOLE = ("CONFIG", "ENV", "SET_JOB_ATTR", "NODE_STATUS_FILE", "JOBSTATE_LOG", "DOT")


def statement(word: str, table: dict[str, Handler]) -> Callable[[Handler], Handler]:
    """Registers a function under the word that begins its statements."""

    def register(handler: Handler) -> Handler:
        table[word] = handler
        return handler

    return register


def integer(text: str, name: str) -> int:
    """A whole number. Raises StatementError."""
    try:
        return clipped_number(text)
    except ValueError:
        raise StatementError(f"expected a whole number for {name}, not {text[:40]!r}") from None


def count(text: str, name: str, least: int = 0) -> int:
    """A whole number that is not too small. Raises StatementError."""
    number = integer(text, name)
    if number < least:
        raise StatementError(f"{name} is at least {least}, not {number}")
    return number


def expect(words: list[str], least: int, most: int | None, form: str) -> None:
    """Raises StatementError where a statement has too few or too many words."""
    if len(words) < least or (most is not None and len(words) > most):
        raise StatementError(f"expected: {form}")


# -- nodes -------------------------------------------------------------------------------------------------------


def _options(scope: DagScope, node: DagNode, words: Iterator[str], allowed: tuple[str, ...]) -> None:
    for word in words:
        option = word.upper()
        if option not in allowed:
            raise StatementError(f"{word!r} has no meaning after the description", f"possible are {', '.join(allowed)}")
        if option == "DIR":
            directory = next(words, "")
            if not directory:
                raise StatementError("DIR needs a directory after it")
            node.directory = scope.path(directory)
        elif option == "NOOP":
            node.noop = True
        else:
            node.done = True


def _job(scope: DagScope, line: DagLine, words: list[str], kind: NodeKind, allowed: tuple[str, ...]) -> None:
    least = 1 if line.block is not None else 2
    expect(words, least, None, f"{kind} NAME DESCRIPTION" + "".join(f" [{word}]" for word in allowed))
    node = DagNode(scope.prefix + words[0], kind, "", line.where, directory=scope.directory)
    rest = words[1:]
    if line.block is not None:
        node.inline, rest = line.block, rest + line.tail.split()
        node.description = words[0]
    else:
        node.description, rest = rest[0], rest[1:]
    _options(scope, node, iter(rest), allowed)
    if kind in (NodeKind.FINAL, NodeKind.PROVISIONER):
        if scope.is_splice:
            raise StatementError(f"a splice has no {kind} node of its own", "use SUBDAG EXTERNAL")
        if other := next(scope.dag.of_kind(kind), None):
            raise StatementError(f"there is one {kind} node at most", f"the other is {other.name}, {other.where}")
    scope.add_node(node)


@statement("JOB", FIRST)
def _read_job(scope: DagScope, line: DagLine, words: list[str]) -> None:
    _job(scope, line, words, NodeKind.JOB, ("DIR", "NOOP", "DONE"))


@statement("FINAL", FIRST)
def _read_final(scope: DagScope, line: DagLine, words: list[str]) -> None:
    _job(scope, line, words, NodeKind.FINAL, ("DIR", "NOOP"))


@statement("PROVISIONER", FIRST)
def _read_provisioner(scope: DagScope, line: DagLine, words: list[str]) -> None:
    _job(scope, line, words, NodeKind.PROVISIONER, ("DIR",))


@statement("SERVICE", FIRST)
def _read_service(scope: DagScope, line: DagLine, words: list[str]) -> None:
    _job(scope, line, words, NodeKind.SERVICE, ("DIR",))


@statement("SUBDAG", FIRST)
def _read_subdag(scope: DagScope, line: DagLine, words: list[str]) -> None:
    form = "SUBDAG EXTERNAL NAME FILE [DIR directory] [NOOP] [DONE]"
    expect(words, 3, None, form)
    if words[0].upper() != "EXTERNAL":
        raise StatementError(f"expected: {form}", "for nodes of this DAG use SPLICE")
    node = DagNode(scope.prefix + words[1], NodeKind.SUBDAG, words[2], line.where, directory=scope.directory)
    _options(scope, node, iter(words[3:]), ("DIR", "NOOP", "DONE"))
    scope.add_node(node)


@statement("SUBMIT-DESCRIPTION", FIRST)
def _read_description(scope: DagScope, line: DagLine, words: list[str]) -> None:
    expect(words, 1, 1, "SUBMIT-DESCRIPTION NAME { ... }")
    if line.block is None:
        raise StatementError("a SUBMIT-DESCRIPTION has its text in braces", "end the line with {, and the text with }")
    if words[0] in scope.descriptions:
        raise StatementError(f"the description {words[0]} is there already")
    scope.descriptions[words[0]] = line.block


@statement("REJECT", FIRST)
def _read_reject(scope: DagScope, line: DagLine, words: list[str]) -> None:
    raise StatementError("the file is marked REJECT: it is not to be run", "remove the line if it is")


# -- edges -------------------------------------------------------------------------------------------------------


@statement("PARENT", SECOND)
def _read_parent(scope: DagScope, line: DagLine, words: list[str]) -> None:
    _connect(scope, words, weak=False)


@statement("WEAK", SECOND)
def _read_weak(scope: DagScope, line: DagLine, words: list[str]) -> None:
    if not words or words[0].upper() != "PARENT":
        raise StatementError("expected: WEAK PARENT NAME ... CHILD NAME ...")
    _connect(scope, words[1:], weak=True)


def _connect(scope: DagScope, words: list[str], *, weak: bool) -> None:
    upper = [word.upper() for word in words]
    at = upper.index("CHILD") if "CHILD" in upper else 0
    if not at or at == len(words) - 1:
        raise StatementError("expected: PARENT NAME ... CHILD NAME ...")
    parents = [end for name in words[:at] for end in scope.ends(name, last=True)]
    children = [end for name in words[at + 1 :] for end in scope.ends(name, last=False)]
    scope.connect(tuple(parents), tuple(children), weak=weak)


def _pin(pins: dict[int, list[str]], scope: DagScope, words: list[str], form: str) -> None:
    expect(words, 2, 2, form)
    pins.setdefault(count(words[1], "a pin", 1), []).append(scope.node(words[0]).name)


@statement("PIN_IN", SECOND)
def _read_pin_in(scope: DagScope, line: DagLine, words: list[str]) -> None:
    _pin(scope.pins_in, scope, words, "PIN_IN NODE NUMBER")


@statement("PIN_OUT", SECOND)
def _read_pin_out(scope: DagScope, line: DagLine, words: list[str]) -> None:
    _pin(scope.pins_out, scope, words, "PIN_OUT NODE NUMBER")


@statement("CONNECT", SECOND)
def _read_connect(scope: DagScope, line: DagLine, words: list[str]) -> None:
    expect(words, 2, 2, "CONNECT SPLICE SPLICE")
    for name in words:
        if name not in scope.splices:
            raise StatementError(f"{name} is no splice: CONNECT joins two splices")
    before, after = scope.splices[words[0]], scope.splices[words[1]]
    pins = max([0, *before.pins_out, *after.pins_in])
    for number in range(1, pins + 1):
        for name, side, found in ((words[0], "PIN_OUT", before.pins_out), (words[1], "PIN_IN", after.pins_in)):
            if number not in found:
                raise StatementError(f"the splice {name} has no {side} {number}, and the other side has")
    if not pins:
        raise StatementError(f"{words[0]} has no PIN_OUT, and {words[1]} no PIN_IN", "use PARENT ... CHILD")
    joined = {name for names in after.pins_in.values() for name in names}
    if missing := [name for name in after.first if name not in joined]:
        raise StatementError(f"{missing[0]} has no parent and no PIN_IN")
    for number in range(1, pins + 1):
        scope.connect(tuple(before.pins_out[number]), tuple(after.pins_in[number]))


# -- nodes' behaviour --------------------------------------------------------------------------------------------


def _no_final(node: DagNode, word: str) -> None:
    if node.kind is NodeKind.FINAL:
        raise StatementError(f"{word} has no meaning for the FINAL node {node.name}")


@statement("SCRIPT", SECOND)
def _read_script(scope: DagScope, line: DagLine, words: list[str]) -> None:
    form = "SCRIPT [DEFER STATUS SECONDS] [DEBUG FILE STDOUT|STDERR|ALL] PRE|POST|HOLD NODE PROGRAM [ARGUMENTS]"
    expect(words, 3, None, form)
    status, seconds, file, streams = None, 0, "", ""
    if words[0].upper() == "DEFER":
        expect(words, 6, None, form)
        status, seconds = integer(words[1], "DEFER"), count(words[2], "the seconds of DEFER")
        words = words[3:]
    if words[0].upper() == "DEBUG":
        expect(words, 6, None, form)
        file, streams = words[1], words[2].upper()
        if streams not in ("STDOUT", "STDERR", "ALL"):
            raise StatementError(f"DEBUG keeps STDOUT, STDERR or ALL, not {words[2]}")
        words = words[3:]
    if words[0].upper() not in tuple(ScriptKind):
        raise StatementError(f"expected: {form}")
    expect(words, 3, None, form)
    kind = ScriptKind(words[0].upper())
    script = DagScript(kind, words[2], tuple(words[3:]), status, seconds, file, streams)
    for node in scope.nodes(words[1]):
        node.scripts[kind] = script


@statement("RETRY", SECOND)
def _read_retry(scope: DagScope, line: DagLine, words: list[str]) -> None:
    form = "RETRY NODE NUMBER [UNLESS-EXIT VALUE]"
    expect(words, 2, 4, form)
    unless = None
    if len(words) > 2:
        if words[2].upper() != "UNLESS-EXIT" or len(words) != 4:
            raise StatementError(f"expected: {form}")
        unless = integer(words[3], "UNLESS-EXIT")
    retries = count(words[1], "RETRY")
    for node in scope.nodes(words[0]):
        _no_final(node, "RETRY")
        node.retries, node.unless_exit = retries, unless


@statement("ABORT-DAG-ON", SECOND)
def _read_abort(scope: DagScope, line: DagLine, words: list[str]) -> None:
    form = "ABORT-DAG-ON NODE VALUE [RETURN VALUE]"
    expect(words, 2, 4, form)
    result = None
    if len(words) > 2:
        if words[2].upper() != "RETURN" or len(words) != 4:
            raise StatementError(f"expected: {form}")
        result = integer(words[3], "RETURN")
        if not 0 <= result <= 255:
            raise StatementError(f"an exit code is between 0 and 255, not {result}")
    value = integer(words[1], "ABORT-DAG-ON")
    for node in scope.nodes(words[0]):
        _no_final(node, "ABORT-DAG-ON")
        node.abort_on, node.abort_return = value, result


@statement("PRE_SKIP", SECOND)
def _read_pre_skip(scope: DagScope, line: DagLine, words: list[str]) -> None:
    expect(words, 2, 2, "PRE_SKIP NODE EXIT-CODE")
    code = integer(words[1], "PRE_SKIP")
    if not code:
        raise StatementError("PRE_SKIP needs an exit code other than 0")
    for node in scope.nodes(words[0]):
        node.pre_skip = code


@statement("TOLERANCE", SECOND)
def _read_tolerance(scope: DagScope, line: DagLine, words: list[str]) -> None:
    form = "TOLERANCE NODE NUMBER[%] [FAIL-FAST | WAIT]"
    if len(words) > 2 and words[2] == "%":
        words = [words[0], f"{words[1]}%", *words[3:]]
    expect(words, 2, 3, form)
    mode = words[2].upper().replace("_", "-") if len(words) > 2 else ""
    if mode not in ("", "FAIL-FAST", "WAIT"):
        raise StatementError(f"expected: {form}")
    value = count(words[1].removesuffix("%"), "TOLERANCE")
    for node in scope.nodes(words[0]):
        node.tolerance, node.is_percentage, node.on_failure = value, words[1].endswith("%"), mode


@statement("PRIORITY", SECOND)
def _read_priority(scope: DagScope, line: DagLine, words: list[str]) -> None:
    expect(words, 2, 2, "PRIORITY NODE NUMBER")
    value = integer(words[1], "PRIORITY")
    if not -(2**31) <= value < 2**31:
        raise StatementError("a priority has 32 bits")
    for node in scope.nodes(words[0]):
        _no_final(node, "PRIORITY")
        node.priority = value


@statement("CATEGORY", SECOND)
def _read_category(scope: DagScope, line: DagLine, words: list[str]) -> None:
    expect(words, 2, 2, "CATEGORY NODE NAME")
    for node in scope.nodes(words[0]):
        _no_final(node, "CATEGORY")
        node.category = _category(scope, words[1])


@statement("MAXJOBS", SECOND)
def _read_maxjobs(scope: DagScope, line: DagLine, words: list[str]) -> None:
    expect(words, 2, 2, "MAXJOBS CATEGORY NUMBER")
    scope.dag.limits[_category(scope, words[0])] = count(words[1], "MAXJOBS")


def _category(scope: DagScope, name: str) -> str:
    """A category's whole name: one that begins with `+` is the same in all splices."""
    return name if name.startswith("+") else scope.prefix + name


@statement("VARS", SECOND)
def _read_vars(scope: DagScope, line: DagLine, words: list[str]) -> None:
    form = 'VARS NODE [PREPEND | APPEND] NAME="VALUE" ...'
    expect(words, 2, None, form)
    rest = line.text.split(None, 2)[2]
    prepend = not scope.append
    if words[1].upper() in ("PREPEND", "APPEND"):
        prepend = words[1].upper() == "PREPEND"
        rest = rest[len(words[1]) :]
    pairs = split_variables(rest)
    if isinstance(pairs, str):
        raise StatementError(f"expected: {form}, not {pairs!r}", 'a value stands in double quotes, with \\" for one')
    for name, value in pairs:
        plain = name[1:] if name.startswith("+") else name
        if not is_name(plain) or plain.lower().startswith("queue"):
            raise StatementError(f"{name!r} cannot be the name of a macro", "letters, digits and _, and not queue...")
        for node in scope.nodes(words[0]):
            node.variables[name.lower()] = NodeVariable(name, value, prepend)


@statement("DONE", SECOND)
def _read_done(scope: DagScope, line: DagLine, words: list[str]) -> None:
    expect(words, 1, 1, "DONE NODE")
    node = scope.node(words[0])
    _no_final(node, "DONE")
    node.done = True


@statement("SAVE_POINT_FILE", SECOND)
def _read_save_point(scope: DagScope, line: DagLine, words: list[str]) -> None:
    expect(words, 1, 2, "SAVE_POINT_FILE NODE [FILE]")
    node = scope.node(words[0])
    file = words[1] if len(words) > 1 else f"{node.name}-{scope.file.rpartition('/')[2]}.save"
    node.save_point = file if "/" in file else f"save_files/{file}"


# -- the DAG as a whole ------------------------------------------------------------------------------------------


@statement("CONFIG", SECOND)
def _read_config(scope: DagScope, line: DagLine, words: list[str]) -> None:
    expect(words, 1, 1, "CONFIG FILE")
    file = scope.path(words[0])
    if scope.dag.config not in ("", file):
        raise StatementError(f"there is one CONFIG file at most, and {scope.dag.config} is it")
    scope.dag.config = file


@statement("ENV", SECOND)
def _read_env(scope: DagScope, line: DagLine, words: list[str]) -> None:
    form = "ENV GET NAME ..., or ENV SET NAME=VALUE;NAME=VALUE"
    expect(words, 2, None, form)
    if words[0].upper() == "GET":
        scope.dag.inherited += words[1:]
        return
    if words[0].upper() != "SET":
        raise StatementError(f"expected: {form}")
    for pair in line.text.split(None, 2)[2].split(";"):
        name, equals, value = pair.strip().partition("=")
        if not pair.strip():
            continue
        if not equals or not name.strip():
            raise StatementError(f"expected: {form}, not {pair.strip()!r}")
        scope.dag.environment[name.strip()] = value


@statement("SET_JOB_ATTR", SECOND)
def _read_attribute(scope: DagScope, line: DagLine, words: list[str]) -> None:
    parts = line.text.split(None, 1)
    name, equals, value = (parts[1] if len(parts) > 1 else "").partition("=")
    if not equals or not value.strip() or not is_name(name.strip()):
        raise StatementError("expected: SET_JOB_ATTR NAME = VALUE")
    scope.dag.attributes[name.strip()] = value.strip()


@statement("DOT", SECOND)
def _read_dot(scope: DagScope, line: DagLine, words: list[str]) -> None:
    form = "DOT FILE [UPDATE | DONT-UPDATE] [OVERWRITE | DONT-OVERWRITE] [INCLUDE FILE]"
    expect(words, 1, None, form)
    update, overwrite, include = False, True, ""
    rest = iter(words[1:])
    for word in rest:
        match word.upper():
            case "UPDATE" | "DONT-UPDATE" as said:
                update = said == "UPDATE"
            case "OVERWRITE" | "DONT-OVERWRITE" as said:
                overwrite = said == "OVERWRITE"
            case "INCLUDE":
                include = next(rest, "")
                if not include:
                    raise StatementError("INCLUDE needs a file after it")
            case _:
                raise StatementError(f"expected: {form}")
    scope.dag.dot = DotFile(words[0], update, overwrite, include)


@statement("NODE_STATUS_FILE", SECOND)
def _read_status_file(scope: DagScope, line: DagLine, words: list[str]) -> None:
    expect(words, 1, 3, "NODE_STATUS_FILE FILE [SECONDS] [ALWAYS-UPDATE]")
    rest = words[1:]
    always = bool(rest) and rest[-1].upper() == "ALWAYS-UPDATE"
    rest = rest[:-1] if always else rest
    if scope.dag.status_file is None:
        scope.dag.status_file = StatusFile(words[0], count(rest[0], "the seconds") if rest else 60, always)


@statement("JOBSTATE_LOG", SECOND)
def _read_jobstate_log(scope: DagScope, line: DagLine, words: list[str]) -> None:
    expect(words, 1, 1, "JOBSTATE_LOG FILE")
    scope.dag.jobstate_log = scope.dag.jobstate_log or words[0]
