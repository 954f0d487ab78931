"""The grammar of jobs of several processes: what the texts of `executable` and `pipe` say.

Two ways to write one (VS 3.2, 4.2, and 8, where the paper wishes for the second):

    executable = foo bar                       executable = foo 'two words' < in | bar 2> log > out
    pipe       = foo | bar
    pipe       = foo > fort.11 fort.10 > bar

Form only: whether names mean anything is for `processes`. The second way is a shell's pipelines, quotes and
redirections, and nothing else of a shell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from pool.jobs.pipes.model import DESCRIPTOR, Joint

_NAMED = re.compile(r"([A-Za-z_]\w*)=(.+)", re.DOTALL)
_LIST_WORD = re.compile(r"""((?:[^\s,'"]|'[^']*'|"[^"]*")+)|[\s,]+|(.)""", re.DOTALL)
_PIPE_WORD = re.compile(r"""([|>,])|((?:[^\s|>,'"]|'[^']*'|"[^"]*")+)|\s+|(.)""", re.DOTALL)
_SHELL = re.compile(
    r"""(?P<blank>\s+)|(?P<refused>&&|\|\||;|`|<<)|(?P<both>\|&)|(?P<join>2>&1)|(?P<inner>[<>]\()|(?P<close>\))"""
    r"""|(?P<to>[12]?>>?)|(?P<from><)|(?P<pipe>\|)|(?P<word>(?:[^\s|<>()'"`;\\&]|&(?!&)|\\.|'[^']*'|"(?:\\.|[^"\\])*")+)"""
    r"""|(?P<odd>.)""",
    re.DOTALL,
)
_PART = re.compile(r"""'([^']*)'|"((?:\\.|[^"\\])*)"|\\(.)|([^'"\\]+)""", re.DOTALL)
_UNNAMEABLE = re.compile(r"\W+", re.ASCII)


class PipelineError(Exception):
    """A text that is no such list; the message is for the user, with a way out."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message, self.hint = message, hint


@dataclass(slots=True)
class Stage:
    """One process as it is written. `words` is None where the text cannot say arguments."""

    name: str
    program: str
    words: list[str] | None = None
    stdin: str = ""
    stdout: str = ""
    stderr: str = ""
    append_stdout: bool = False
    append_stderr: bool = False
    errors_to_stdout: bool = False


@dataclass(slots=True)
class ShellLine:
    """The meaning of one text: the processes, and the pipes between them."""

    stages: list[Stage] = field(default_factory=list)
    joints: list[Joint] = field(default_factory=list)

    def add(self, program: str) -> Stage:
        """One more process, under a name of its own: given as `name=program`, else the program's."""
        found = _NAMED.fullmatch(program)
        name = found[1] if found else name_for(program, {stage.name for stage in self.stages})
        self.stages.append(Stage(name, found[2] if found else program))
        return self.stages[-1]


def is_pipeline(text: str) -> bool:
    """Whether the text of `executable` is the shell-like form: it has a `|` outside quotes."""
    return "|" in text and any(found["pipe"] or found["both"] for found in _SHELL.finditer(text))


def name_for(program: str, taken: set[str] | frozenset[str] = frozenset()) -> str:
    """A process's name from its program's: its last part, letters, digits and _ only, a number when it is taken."""
    plain = _UNNAMEABLE.sub("_", program.rstrip("/").rpartition("/")[2]) or "process"
    name, number = plain, 2
    while name in taken:
        name, number = f"{plain}{number}", number + 1
    return name


def read_list(text: str) -> ShellLine:
    """`executable = foo bar`, `executable = a=/bin/cat b=/bin/cat`.

    Raises:
        PipelineError: a quote is not closed, or two processes have one name.
    """
    line = ShellLine()
    for word in _split_words(_LIST_WORD, text):
        found = _NAMED.fullmatch(word)
        name = found[1] if found else name_for(word)
        if any(stage.name == name for stage in line.stages):
            raise PipelineError(
                f"two processes are named {name!r}, but names must be unique (VS 3.2, rule 1)",
                f"name them: executable = {name}1={word.rpartition('=')[2]} {name}2={word.rpartition('=')[2]}",
            )
        line.add(word)
    return line


def read_pipes(text: str) -> list[Joint]:
    """`foo | bar`, `foo > fort.11 fort.10 > bar`, lists of them between commas, chains of the first.

    `-` in place of a file is stdout or stdin.

    Raises:
        PipelineError: it is none of these.
    """
    joints: list[Joint] = []
    for part in _parts(text):
        if "|" in part:
            joints += _chain(part)
        elif len(part) == 6 and part[1] == ">" and part[4] == ">" and not {"|", ">"} & {part[0], *part[2:4], part[5]}:
            joints.append(Joint(part[0], part[5], _end(part[2]), _end(part[3])))
        else:
            raise PipelineError(
                f"expected 'foo | bar' or 'foo > file file > bar' in 'pipe', not {' '.join(part)!r}",
                "the first file is foo's, the second bar's",
            )
    return joints


def _chain(part: list[str]) -> Iterator[Joint]:
    for place, word in enumerate(part):
        if (place % 2 == 1) != (word == "|") or word == ">" or len(part) % 2 == 0:
            raise PipelineError(
                f"a process is missing in 'pipe': {' '.join(part)!r}", "write a process on either side of each |"
            )
    for writer, reader in zip(part[::2], part[2::2], strict=False):
        yield Joint(writer, reader)


def _parts(text: str) -> Iterator[list[str]]:
    part: list[str] = []
    for word in [*_split_words(_PIPE_WORD, text), ","]:
        if word != ",":
            part.append(word)
        elif part:
            yield part
            part = []


def _end(word: str) -> str:
    return "" if word == "-" else word


def _split_words(pattern: re.Pattern[str], text: str) -> Iterator[str]:
    for found in pattern.finditer(text):
        groups = found.groups()
        if groups[-1]:
            raise PipelineError(f"a quote is never closed: {text[found.start() :][:40]!r}")
        word = next((group for group in groups if group), "")
        if word:
            yield re.sub(r"""'([^']*)'|"([^"]*)\"""", lambda one: one[1] or one[2] or "", word)


def read_shell(text: str) -> ShellLine:
    """`p1 -x 'a b' < in | tee >(p2 > x) | p3 2> log >> out`.

    `>(...)` and `<(...)` are pipelines, as in bash. The process before them opens the pipeline's stdin or stdout by the
    name that stands in their place. So `tee >(p2) | p3` gives both all of the data.

    Raises:
        PipelineError: it is not of that form, or wants more of a shell than shell_syntax.
    """
    reading = _Shell(text)
    reading.pipeline(inner=False)
    return reading.line


class _Shell:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = [found for found in _SHELL.finditer(text) if not found["blank"]]
        self.at = 0
        self.line = ShellLine()

    def pipeline(self, *, inner: bool) -> tuple[Stage, Stage]:
        """One pipeline up to its end, or to the parenthesis that closes it; its first and last process."""
        first = last = self.command()
        while self.at < len(self.tokens):
            token = self.tokens[self.at]
            if token["close"] and inner:
                self.at += 1
                return first, last
            if not token["pipe"] and not token["both"]:
                raise self.syntax_error(token)
            self.at += 1
            if last.stdout:
                raise PipelineError(
                    f"the stdout of {last.name} goes both to {last.stdout!r} and into a pipe (VS 4.2, rule 3)",
                    "leave one of them out, or put tee between",
                )
            last.errors_to_stdout |= bool(token["both"])
            reader = self.command()
            if reader.stdin:
                raise PipelineError(
                    f"the stdin of {reader.name} comes both from {reader.stdin!r} and out of a pipe (VS 4.2, rule 3)"
                )
            self.line.joints.append(Joint(last.name, reader.name))
            last = reader
        if inner:
            raise PipelineError("a parenthesis is never closed", "end it with )")
        return first, last

    def command(self) -> Stage:
        """A program, its arguments and redirections."""
        stage: Stage | None = None
        before: list[tuple[str, str]] = []
        while self.at < len(self.tokens):
            token = self.tokens[self.at]
            if token["word"]:
                self.at += 1
                word = self.unquoted_word(token["word"])
                if stage is None:
                    stage = self.line.add(word)
                    stage.words = []
                else:
                    stage.words.append(word)  # type: ignore[union-attr]
            elif token["to"] or token["from"]:
                self.at += 1
                before.append((token["to"] or token["from"], self.file(token)))
            elif token["join"]:
                self.at += 1
                before.append(("join", ""))
            elif token["inner"] and stage is not None:
                self.at += 1
                self.substitute(stage, writes=token["inner"] == ">(")
            else:
                break
        if stage is None:
            raise PipelineError(
                f"a process is missing in 'executable': {self.text[:60]!r}", "write a program on either side of each |"
            )
        for operator, path in before:
            _redirect(stage, operator, path)
        return stage

    def file(self, operator: re.Match[str]) -> str:
        token = self.tokens[self.at] if self.at < len(self.tokens) else None
        if token is None or not token["word"]:
            raise PipelineError(f"a file name is missing after {operator[0]!r}")
        self.at += 1
        return self.unquoted_word(token["word"])

    def substitute(self, stage: Stage, *, writes: bool) -> None:
        used = sum(word.startswith(DESCRIPTOR) for word in stage.words or ())
        name = f"{DESCRIPTOR}{3 + used}"
        assert stage.words is not None
        stage.words.append(name)
        stages = self.line.stages
        place, count = stages.index(stage), len(stages)
        first, last = self.pipeline(inner=True)
        # The last process is the one whose end is the job's: those in parentheses come before who stands outside.
        stages[place:] = [*stages[place + 1 : count], *stages[count:], stage]
        if writes:
            self.line.joints.append(Joint(stage.name, first.name, name))
        else:
            self.line.joints.append(Joint(last.name, stage.name, "", name))

    def unquoted_word(self, raw: str) -> str:
        if re.search(r"[*?\[]", _PART.sub(lambda one: one[4] or "", raw)):
            raise PipelineError(
                f"{raw!r} is not expanded to the files that it matches", "name the files, or put it in quotes as it is"
            )
        return _PART.sub(
            lambda one: (
                re.sub(r'\\(["\\$`])', r"\1", one[2]) if one[2] is not None else one[1] or one[3] or one[4] or ""
            ),
            raw,
        )

    def syntax_error(self, token: re.Match[str]) -> PipelineError:
        if token["odd"] in ("'", '"'):
            return PipelineError(f"a quote is never closed: {token.string[token.start() :][:40]!r}")
        if token["inner"]:
            return PipelineError(f"{token[0]!r} needs a program before it", "put a blank between > and (")
        return PipelineError(
            f"{token[0]!r} is not for a pipeline of programs",
            "quote it, or write shell = COMMAND for a shell's command line",
        )


def _redirect(stage: Stage, operator: str, path: str) -> None:
    end, append = operator.rstrip(">"), operator.endswith(">>")
    if operator == "join":
        stage.errors_to_stdout = True
        return
    name = "stdin" if operator == "<" else "stderr" if end == "2" else "stdout"
    if getattr(stage, name):
        raise PipelineError(f"the {name} of {stage.name} is given twice: {getattr(stage, name)!r} and {path!r}")
    setattr(stage, name, path)
    if append:
        setattr(stage, f"append_{name}", True)
