"""The rules of the house that a program can check: types, floors, the outside world, what a file must say.

Does not check what the code does. Each rule is a pure function over a file's syntax tree and has a test
of its own that shows it catches what it is for.
"""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import lizard
import pytest

from tests.conftest import REPOSITORY
from tests.floors import FLOOR_OF, FLOORS, INNER_FLOORS, floors_of, rooms_in, tables

SOURCES = sorted((REPOSITORY / "pool").rglob("*.py"))
TESTS = sorted((REPOSITORY / "tests").rglob("*.py"))
CHECKPOINT = REPOSITORY / "pool" / "checkpoint"
LONGEST = 700
MOST_BRANCHES = 25  # cyclomatic complexity of one C function, as lizard counts it

#: The C functions above MOST_BRANCHES that are one table or one switch: split, they would be harder to read.
TABLES_IN_C = {
    "image/image.c": {"check_memory", "check_rest"},  # the rule of each kind of row
    "remote_notify/path_calls.c": {"by_name"},  # each kind of call
}

CLOCK_AND_CHANCE = {
    "time": {"time", "monotonic", "perf_counter", "process_time", "thread_time", "clock_gettime", "sleep"},
    "datetime": {"now", "utcnow", "today"},
    "secrets": None,
    "random": None,
    "uuid": {"uuid1", "uuid4"},
    "os": {"urandom", "getrandom"},
}
ALLOWED_NAMES = {"random.Random"}  # the type of an injected source; making one is caught as a call


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), filename=str(path))


def room_of(module: str) -> str | None:
    """The room of a module's dotted name: 'pool.wire.frames' lives in 'wire'; None outside the package."""
    parts = module.split(".")
    return parts[1] if parts[0] == "pool" and len(parts) > 1 else None


def module_name(path: Path) -> str:
    parts = path.relative_to(REPOSITORY).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(tree: ast.Module, package: str) -> Iterator[tuple[int, str]]:
    """(line, dotted module) of every import, relative ones resolved against the package."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            yield node.lineno, base
            if base == "pool":
                yield from ((node.lineno, f"pool.{alias.name}") for alias in node.names)


def climbing(tree: ast.Module, module: str, *, is_package: bool = False) -> list[str]:
    """Imports of this module that do not go down the floors."""
    own = room_of(module)
    package = module if is_package else module.rpartition(".")[0]
    found = []
    for line, name in imported(tree, package):
        other = room_of(name)
        if other is None or other == own or own is None:
            continue
        if other not in FLOOR_OF:
            if other.startswith("__"):
                continue
            found.append(f"line {line}: {name} is on no floor")
        elif own not in FLOOR_OF:
            found.append(f"{module} is on no floor")
        elif FLOOR_OF[other] >= FLOOR_OF[own]:
            found.append(f"line {line}: {own} imports {name}, which is not below it")
    return found


def climbing_inside(tree: ast.Module, module: str, folder: str, floor_of: dict[str, int]) -> list[str]:
    """Imports within one package that do not go down its own floors; its `__init__` may show what it likes."""
    package = folder.replace("/", ".")
    if not module.startswith(f"{package}."):
        return []
    own = module.removeprefix(f"{package}.").partition(".")[0]
    found = []
    for line, name in imported(tree, module.rpartition(".")[0]):
        names = [name]
        if name == package:  # `from package import room`
            names = [f"{package}.{alias}" for alias in _names_at(tree, line)]
        for each in names:
            other = each.removeprefix(f"{package}.").partition(".")[0] if each.startswith(f"{package}.") else own
            if other == own:
                continue
            if other not in floor_of or own not in floor_of:
                found.append(f"line {line}: {each} or {own} is on no floor of {folder}")
            elif floor_of[other] >= floor_of[own]:
                found.append(f"line {line}: {own} imports {each}, which is not below it")
    return found


def _names_at(tree: ast.Module, line: int) -> list[str]:
    froms = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.lineno == line)
    return [alias.name for node in froms for alias in node.names]


def knots(tree: ast.Module) -> list[str]:
    """Attributes that a method which makes a role's parts sets on a part afterwards: `self.part.other = ...`."""
    found = []
    for method in ast.walk(tree):
        if not isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if method.name not in ("__init__", "start", "_build") and not method.name.startswith("_make"):
            continue
        for target in ast.walk(method):
            if not isinstance(target, ast.Attribute) or not isinstance(target.ctx, ast.Store):
                continue
            if isinstance(target.value, ast.Attribute):
                found.append(f"line {target.lineno}: {method.name} sets {ast.unparse(target)}")
    return found


def mentions(tree: ast.Module, name: str) -> list[str]:
    """Where a name stands in a file: imported, used, or within an annotation's text."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == name:
            found.append(f"line {node.lineno}: {name}")
        elif isinstance(node, ast.ImportFrom) and any(name in (alias.name, alias.asname) for alias in node.names):
            found.append(f"line {node.lineno}: imports {name}")
        elif isinstance(node, ast.Attribute) and node.attr == name:
            found.append(f"line {node.lineno}: {name}")
        elif isinstance(node, ast.AnnAssign | ast.arg) and isinstance(node.annotation, ast.Constant):
            text = str(node.annotation.value)
            found += [f"line {node.lineno}: {name}"] if re.search(rf"\b{name}\b", text) else []
    return found


def outside_reads(tree: ast.Module) -> list[str]:
    """Places that read a clock or draw a random number by themselves."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update({alias.asname or alias.name: alias.name for alias in node.names})
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.update({alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names})
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    found = []
    for node in ast.walk(tree):
        dotted = _dotted(node, names)
        if dotted is None:
            continue
        module, _, rest = dotted.partition(".")
        if module not in CLOCK_AND_CHANCE or not rest:
            continue
        if dotted in ALLOWED_NAMES and id(node) not in called:
            continue
        forbidden = CLOCK_AND_CHANCE[module]
        if forbidden is None or rest.rpartition(".")[2].removesuffix("_ns") in forbidden:
            found.append(f"line {node.lineno}: {dotted}")  # type: ignore[attr-defined]
    return found


def loose_digits(tree: ast.Module) -> list[str]:
    """Places that take more than 0 to 9 for a digit: `str.isdigit` and its like, and `\\d` in a pattern of text."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in ("isdigit", "isdecimal", "isnumeric"):
            found.append(f"line {node.lineno}: {node.attr}; see pool/decimals.py")
        if isinstance(node, ast.Call) and _dotted(node.func, {"re": "re"}) is not None:
            texts = [one.value for one in ast.walk(node) if isinstance(one, ast.Constant)]
            if any(isinstance(text, str) and "\\d" in text for text in texts):
                found.append(f"line {node.lineno}: \\d; write [0-9]")
    return found


def silent_skips(tree: ast.Module) -> list[str]:
    """Tests that can pass without having tested anything: a branch only returns before the first assertion, or the
    body is one `if`.
    """
    found = []
    for test in ast.walk(tree):
        if not isinstance(test, ast.FunctionDef | ast.AsyncFunctionDef) or not test.name.startswith("test_"):
            continue
        body = test.body[1:] if ast.get_docstring(test) else test.body
        if len(body) == 1 and isinstance(body[0], ast.If) and not body[0].orelse:
            found.append(f"line {test.lineno}: {test.name} does nothing where its condition does not hold")
        looks = (node.lineno for node in ast.walk(test) if isinstance(node, ast.Assert))
        first = min(looks, default=sys.maxsize)
        found += [f"line {line}: {test.name} returns without a word" for line in _bare_returns(body) if line < first]
    return found


def _bare_returns(body: list[ast.stmt]) -> Iterator[int]:
    """The lines of branches that are one `return`; functions within are their own."""
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            part = getattr(statement, name, [])
            if len(part) == 1 and isinstance(part[0], ast.Return):
                yield part[0].lineno
            yield from _bare_returns(part)


def shared_class_names(trees: Iterable[tuple[str, ast.Module]]) -> list[str]:
    """Names of classes that more than one of the files (name, tree) defines at its top: one name has one meaning."""
    where: dict[str, set[str]] = {}
    for name, tree in trees:
        for statement in tree.body:
            if isinstance(statement, ast.ClassDef):
                where.setdefault(statement.name, set()).add(name)
    return [f"{name}: {', '.join(sorted(files))}" for name, files in sorted(where.items()) if len(files) > 1]


def veiled_subjects(text: str) -> list[str]:
    """Docstrings and comments that begin with a clause as their subject ("What is left ..."), by line.

    A reader has to hold such a clause until its verb comes. A noun says the same at once: "The rest ...". Questions may
    begin so.
    """
    lines = enumerate(text.splitlines(), start=1)
    return [f"{number}: {line.strip()}" for number, line in lines if _VEILED.search(line) and "?" not in line]


_VEILED = re.compile(r'^\s*[rf]?"""(What|Who|Whoever|Whose) |#:? (What|Who|Whoever|Whose) ')


def vague_names(tree: ast.Module) -> list[str]:
    """Functions whose whole name is a word that does not say what is done with what: `take`, `_look`."""
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return [f"line {node.lineno}: {node.name}" for node in functions if node.name.strip("_") in _VAGUE]


_VAGUE = frozenset(
    {
        "ask", "asked", "bring", "do", "gave", "give", "give_back", "go", "happen", "happened", "keep", "kept",
        "know", "knows", "learn", "look", "looked", "more", "need", "needs", "note", "one", "put", "put_out", "said",
        "say", "take", "take_up", "tell", "told", "took", "turn", "want", "wants",
    }
)  # fmt: skip


def _dotted(node: ast.AST, names: dict[str, str]) -> str | None:
    """The full dotted name that an expression stands for, when it begins with something imported."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute):
        value = _dotted(node.value, names)
        return None if value is None else f"{value}.{node.attr}"
    return None


def run(*command: str) -> None:
    done = subprocess.run([sys.executable, "-m", *command], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def identify(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


def test_ruff() -> None:
    run("ruff", "check", ".")


def test_types() -> None:
    run("mypy")


def test_c_is_formatted() -> None:
    """As .clang-format says; so no line is longer than 120 columns. `clang-format -i FILE` formats one."""
    sources = sorted(map(str, (REPOSITORY / "pool").rglob("*.[ch]")))
    assert len(sources) > 100
    program = Path(sys.executable).with_name("clang-format")
    done = subprocess.run(
        [program, "--dry-run", "--Werror", *sources], capture_output=True, text=True, check=False, cwd=REPOSITORY
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert [name for name in sources if any(len(line) > 120 for line in Path(name).read_text().splitlines())] == []


def too_complex(path: Path, text: str | None = None) -> list[str]:
    """The functions of a C file above the bound of complexity, without those of the list."""
    name = str(path.relative_to(CHECKPOINT))
    read = lizard.analyze_file.analyze_source_code(str(path), path.read_text() if text is None else text)
    return [
        f"{each.name}: {each.cyclomatic_complexity} branches"
        for each in read.function_list
        if each.cyclomatic_complexity > MOST_BRANCHES and each.name not in TABLES_IN_C.get(name, ())
    ]


def test_c_functions_are_simple() -> None:
    """A function with more branches is split. A function that is one table or one switch stands in TABLES_IN_C."""
    assert faults(sorted(CHECKPOINT.rglob("*.c")), too_complex) == []


def test_the_list_of_c_tables_is_true() -> None:
    """A function leaves the list when it gets simple, or a new name."""
    for name, allowed in TABLES_IN_C.items():
        functions = lizard.analyze_file(str(CHECKPOINT / name)).function_list
        above = {each.name for each in functions if each.cyclomatic_complexity > MOST_BRANCHES}
        assert above == allowed, name


def test_the_rule_of_simple_functions_catches() -> None:
    branches = "".join(f"    if (a == {i})\n        return {i};\n" for i in range(MOST_BRANCHES))
    made = f"int f(int a)\n{{\n{branches}    return 0;\n}}\n"
    assert too_complex(CHECKPOINT / "made.c", made) == ["f: 26 branches"]
    assert too_complex(CHECKPOINT / "made.c", made.replace("    if (a == 0)\n        return 0;\n", "")) == []


def faults(paths: Iterable[Path], rule: Callable[[Path], Iterable[str]]) -> list[str]:
    """A rule's findings in any of the files, each with its file."""
    return [f"{identify(path)}: {fault}" for path in paths for fault in rule(path)]


def test_imports_go_down_the_floors() -> None:
    def rule(path: Path) -> list[str]:
        return climbing(parsed(path), module_name(path), is_package=path.name == "__init__.py")

    assert faults(SOURCES, rule) == []


def test_the_floors_are_the_rooms_that_there_are() -> None:
    for folder, floors in {"pool": FLOORS, **INNER_FLOORS}.items():
        there = rooms_in(REPOSITORY / folder)
        assert sorted(room for floor in floors for room in floor.rooms) == sorted(there), folder
    text = (REPOSITORY / "docs" / "architecture.md").read_text()
    assert [each for each in tables(REPOSITORY) if each not in text] == [], "python -m tests.floors prints them"


@pytest.mark.parametrize("folder", INNER_FLOORS)
def test_imports_go_down_the_floors_inside(folder: str) -> None:
    floor_of = floors_of(INNER_FLOORS[folder])
    inside = [path for path in SOURCES if path.is_relative_to(REPOSITORY / folder)]
    assert len(inside) > len(floor_of)
    assert faults(inside, lambda path: climbing_inside(parsed(path), module_name(path), folder, floor_of)) == []


@pytest.mark.parametrize(
    ("folder", "role", "joined_in"),
    [
        ("startd", "Startd", "role.py"),
        ("negotiator", "Negotiator", "role.py"),
        ("schedd", "Schedd", "role.py"),
        ("schedd", "Placement", "placement/placement.py"),
    ],
)
def test_no_part_of_a_role_knows_the_role(folder: str, role: str, joined_in: str) -> None:
    """Each part gets the data, callbacks and protocols that it needs, when it is made; one file joins the parts."""
    inside = [path for path in SOURCES if path.is_relative_to(REPOSITORY / "pool" / "roles" / folder)]
    top = REPOSITORY / "pool" / "roles" / folder
    parts = [path for path in inside if path not in (top / "__init__.py", top / "role.py", top / joined_in)]
    assert len(parts) > 5
    assert faults(parts, lambda path: mentions(parsed(path), role)) == []
    assert faults(inside, lambda path: knots(parsed(path))) == []


def test_nothing_else_reads_clocks_or_chance() -> None:
    testing = REPOSITORY / "pool" / "testing"
    inside = [path for path in SOURCES if path.name != "outside.py" and not path.is_relative_to(testing)]
    assert faults(inside, lambda path: outside_reads(parsed(path))) == []


def test_digits_are_0_to_9() -> None:
    inside = [path for path in SOURCES if path != REPOSITORY / "pool" / "decimals.py"]
    assert faults(inside, lambda path: loose_digits(parsed(path))) == []


def test_each_file_says_what_it_is_for() -> None:
    def rule(path: Path) -> Iterator[str]:
        tree = parsed(path)
        if tree.body and not ast.get_docstring(tree):
            yield "no module docstring"
        if (length := len(path.read_text().splitlines())) > LONGEST:
            yield f"{length} lines: no longer one sitting"

    assert faults([*SOURCES, *TESTS], rule) == []


def test_each_class_has_a_name_of_its_own() -> None:
    """Private classes, too: a reader of `Claim` in one room must not think of another room's class."""
    assert shared_class_names((identify(path), parsed(path)) for path in SOURCES) == []


def test_sentences_begin_with_their_subject() -> None:
    assert faults([*SOURCES, *TESTS], lambda path: veiled_subjects(path.read_text())) == []


def test_names_of_functions_say_something() -> None:
    assert faults(SOURCES, lambda path: vague_names(parsed(path))) == []


def test_no_test_passes_without_testing() -> None:
    """Where a machine lacks what a test needs, the test is skipped and says so (tests/skips.py)."""
    tests = [path for path in TESTS if path.name.startswith("test_")]
    assert faults(tests, lambda path: silent_skips(parsed(path))) == []


def test_nothing_is_left_open() -> None:
    left = re.compile(r"\b(TODO|FIXME|X{3})\b|raise NotImplementedError|pytest\.mark\.(skip\b|xfail)")
    this = Path(__file__)
    native = (REPOSITORY / "pool").rglob("*.[ch]")
    found = [
        f"{identify(path)}:{number}: {line.strip()}"
        for path in [*SOURCES, *TESTS, *native]
        if path != this
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if left.search(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("module", "text", "caught"),
    [
        ("pool.classad.lexer", "from pool.roles.schedd import Schedd", True),
        ("pool.classad.lexer", "def f():\n    import pool.wire.frames", True),
        ("pool.classad.lexer", "from ..wire import frames", True),
        ("pool.classad.lexer", "from pool import node", True),
        ("pool.classad.lexer", "from pool.nowhere import x", True),
        ("pool.wire.tcp", "from pool.testing import VirtualLoop", True),
        ("pool.classad.lexer", "from .values import UNDEFINED\nfrom pool.errors import PoolError", False),
        ("pool.roles.schedd", "from pool.store import Store\nfrom pool.policy.queue import order", False),
        ("pool.testing.net", "from pool.node import personal", False),
    ],
)
def test_the_floor_rule_catches(module: str, text: str, caught: bool) -> None:
    assert bool(climbing(ast.parse(text), module)) is caught


@pytest.mark.parametrize(
    ("text", "caught"),
    [
        ("import time\ntime.time()", True),
        ("import time as t\nclock = t.monotonic_ns", True),
        ("from time import perf_counter as p\np()", True),
        ("from datetime import datetime\ndatetime.now()", True),
        ("import datetime\ndatetime.datetime.utcnow()", True),
        ("import random\nrandom.Random(3)", True),
        ("from random import choice\nchoice([1])", True),
        ("import secrets\nsecrets.token_hex(8)", True),
        ("import os\nos.urandom(8)", True),
        ("import uuid\nuuid.uuid4()", True),
        ("import time\ntime.strftime('%F', time.gmtime(0))", False),
        ("import random\ndef f(chance: random.Random) -> float:\n    return chance.random()", False),
        ("import asyncio\nasyncio.get_running_loop().time()", False),
        ("from datetime import datetime, UTC\ndatetime.fromtimestamp(0, UTC)", False),
    ],
)
def test_the_outside_rule_catches(text: str, caught: bool) -> None:
    assert bool(outside_reads(ast.parse(text))) is caught


@pytest.mark.parametrize(
    ("text", "caught"),
    [
        ("ok = text.isdigit()", True),
        ("ok = all(map(str.isnumeric, words))", True),
        ("import re\nA = re.compile(r'a\\d+')", True),
        ("import re\nfound = re.fullmatch(rf'{name}\\d', text)", True),
        ("import re\nA = re.compile(r'a[0-9]+')", False),
        ("ok = has_digits_only(text)", False),
    ],
)
def test_the_rule_of_digits_catches(text: str, caught: bool) -> None:
    assert bool(loose_digits(ast.parse(text))) is caught


@pytest.mark.parametrize(
    ("text", "caught"),
    [
        ("def test_a():\n    if lacking: return\n    assert b", True),
        ("async def test_a():\n    async with b:\n        if lacking:\n            return\n        assert c", True),
        ("def test_a():\n    try: b()\n    except OSError: return\n    assert c", True),
        ("def test_a():\n    'Says.'\n    if able:\n        assert b", True),
        ("def test_a():\n    if lacking:\n        assert b\n        return\n    assert c", False),
        ("def test_a():\n    def b():\n        if c: return\n    assert b", False),
        ("def helper():\n    if lacking: return", False),
    ],
)
def test_the_rule_of_silent_tests_catches(text: str, caught: bool) -> None:
    assert bool(silent_skips(ast.parse(text))) is caught


@pytest.mark.parametrize(
    ("text", "caught"),
    [
        ('    """What is left of it."""', True),
        ("{}: Who asked first.", True),
        ("x = 1  {} Whoever sends them may be gone.", True),
        ('    """The rest of it."""', False),
        ("{} What if nobody answers? The lease ends.", False),
        ('text = "Whose job is that"', False),
    ],
)
def test_the_rule_of_subjects_catches(text: str, caught: bool) -> None:
    assert bool(veiled_subjects(text.format("#"))) == caught


@pytest.mark.parametrize(
    ("text", "caught"),
    [
        ("class Store:\n def _take(self): ...", True),
        ("async def look(): ...", True),
        ("def take_snapshot(): ...", False),
        ("take = 1", False),
    ],
)
def test_the_rule_of_vague_names_catches(text: str, caught: bool) -> None:
    assert bool(vague_names(ast.parse(text))) == caught


@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [
        ("class Place: ...", "class Place(Protocol): ...", True),
        ("class _Reader: ...", "@dataclass\nclass _Reader: ...", True),
        ("class Place: ...", "class Slot: ...", False),
        ("class Place: ...", "from a import Place", False),
        ("class Place: ...", "def f():\n class Place: ...", False),
    ],
)
def test_the_rule_of_class_names_catches(first: str, second: str, shared: bool) -> None:
    assert bool(shared_class_names([("a.py", ast.parse(first)), ("b.py", ast.parse(second))])) == shared


@pytest.mark.parametrize(
    ("module", "text", "caught"),
    [
        ("pool.roles.startd.slots.ads", "from pool.roles.startd.owner.watch import OwnerWatch", True),
        ("pool.roles.startd.slots.ads", "def f():\n    from pool.roles.startd import claims", True),
        ("pool.roles.startd.slots.ads", "if TYPE_CHECKING:\n    from pool.roles.startd.role import Startd", True),
        ("pool.roles.startd.slots.ads", "from pool.roles.startd.nowhere import x", True),
        ("pool.roles.startd.slots.ads", "from pool.roles.startd.slots import records", False),
        ("pool.roles.startd.role", "from pool.roles.startd.slots.ads import SlotAds", False),
        ("pool.roles.startd", "from pool.roles.startd.role import Startd", False),
    ],
)
def test_the_rule_of_inner_floors_catches(module: str, text: str, caught: bool) -> None:
    folder = "pool/roles/startd"
    found = climbing_inside(ast.parse(text), module, folder, floors_of(INNER_FLOORS[folder]))
    assert bool(found) is caught


@pytest.mark.parametrize(
    ("text", "caught"),
    [
        ("class P:\n def __init__(self, startd: Startd): ...", True),
        ("class P:\n def __init__(self, startd: 'Startd | None'): ...", True),
        ("from pool.roles.startd.role import Startd as S", True),
        ("from pool.roles.startd import role\nrole.Startd", True),
        ("class P:\n def __init__(self, startd: SlotTable): ...", False),
    ],
)
def test_the_rule_of_parts_catches(text: str, caught: bool) -> None:
    assert bool(mentions(ast.parse(text), "Startd")) is caught


@pytest.mark.parametrize(
    ("text", "caught"),
    [
        ("class R:\n async def start(self):\n  self.ads.owner = self.owner", True),
        ("class R:\n def _build(self):\n  self.ads.owner: int = 1", True),
        ("class R:\n def _make_ads(self):\n  self.ads.owner = 1", True),
        ("class R:\n async def start(self):\n  self.ads = SlotAds(self.owner)", False),
        ("class R:\n def reload(self):\n  self.share.rate = 1.0", False),
    ],
)
def test_the_rule_of_knots_catches(text: str, caught: bool) -> None:
    assert bool(knots(ast.parse(text))) is caught
