"""Alarms about the code itself: sizes, constructors, waiting and mocking in tests, swallowed errors, leftovers, pickle (S14).

A number here is an alarm, not a target. What must exceed one stands in ALLOWED with its reason.
"""

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("rmq", "analytics", "examples", "benchmarks", "tests")
TABLE_ITEMS = 8
MAX_FILE, MAX_FUNCTION, MAX_CLASS, MAX_ARGUMENTS = 500, 60, 300, 7
OBJECT_BUILDERS = {"pickle", "marshal", "shelve", "dill", "cloudpickle"}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
WHOLE_NODES = {"Broker", "Nameserver", "LocalBroker"}
VAGUE_NAME = re.compile(r"(Manager|Util|Utils|Helper|Impl)$")
SOCKET_MAKERS = {"open_connection", "create_connection", "start_server", "create_server", "start_tls"}
CLOCKS = {"time.time", "time.time_ns", "time.monotonic", "time.monotonic_ns", "datetime.now", "datetime.utcnow", "datetime.today"}
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_NAMING = ("id", "attr", "arg", "name", "asname")
LEFTOVER = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b(?!_)|/work/")

# (file, rule) -> why it may. Empty is best.
ALLOWED: dict[tuple[str, str], str] = {
    ("tests/faults/calls.py", "waiting"): "calls of real processes, again and again",
    ("tests/faults/delays.py", "waiting"): "messages of a real process fall due in real time",
    ("tests/faults/failover.py", "waiting"): "sends at a given rate, and looks at real processes",
    ("tests/faults/failing.py", "waiting"): "faults of real processes last for real time",
    ("tests/faults/group.py", "waiting"): "faults of real processes last for real time",
    ("tests/faults/halves.py", "waiting"): "faults of real processes last for real time",
    ("tests/faults/hurting.py", "waiting"): "faults of real processes last for real time",
    ("tests/faults/lives.py", "waiting"): "topics of real processes live for real time",
    ("tests/faults/members.py", "waiting"): "looks at real processes now and then",
    ("tests/faults/node.py", "waiting"): "asks a process that starts now and then",
    ("tests/faults/pops.py", "waiting"): "kills real processes now and then",
    ("tests/faults/soak.py", "waiting"): "looks at the machine now and then",
    ("tests/faults/storming.py", "waiting"): "sends at a given rate",
    ("tests/interop/mqadmin.py", "waiting"): "looks at the real RocketMQ now and then",
    ("tests/interop/lites.py", "waiting"): "looks at the real RocketMQ now and then",
    ("tests/interop/java.py", "waiting"): "asks the real RocketMQ now and then",
    ("tests/faults/strangers.py", "waiting"): "looks at real processes now and then",
    ("tests/interop/crossing.py", "waiting"): "Java asks for routes in real time",
    ("tests/faults/moves.py", "waiting"): "kills real processes now and then",
    ("tests/faults/kinds.py", "waiting"): "producers at a rate, while real processes are killed",
    ("tests/faults/compacted.py", "waiting"): "producers at a rate, while real processes are killed",
    ("tests/interop/mixed.py", "waiting"): "kills real processes every 20 s",
    ("tests/interop/locked.py", "waiting"): "sends at a given rate, and looks at real processes",
    ("tests/faults/takers.py", "waiting"): "members of a group stay for real time",
    ("tests/faults/traffic.py", "waiting"): "sends at a given rate",
    ("tests/faults/waiting.py", "waiting"): "messages of real processes fall due in real time",
}

Finding = tuple[int, str]
Rule = Callable[[str, ast.Module], Iterator[Finding]]


def file_size(text: str, tree: ast.Module) -> Iterator[Finding]:
    lines = text.count("\n")
    if lines > MAX_FILE:
        yield 1, f"{lines} lines, more than {MAX_FILE}: split it by subject"


def function_size(text: str, tree: ast.Module) -> Iterator[Finding]:
    for node in _functions(tree):
        if _lines(node) > MAX_FUNCTION:
            yield node.lineno, f"{node.name} has {_lines(node)} lines, more than {MAX_FUNCTION}"


def class_size(text: str, tree: ast.Module) -> Iterator[Finding]:
    for node in _nodes(tree):
        if isinstance(node, ast.ClassDef) and _lines(node) > MAX_CLASS:
            yield node.lineno, f"class {node.name} has {_lines(node)} lines, more than {MAX_CLASS}: it is two classes"


def constructor_arguments(text: str, tree: ast.Module) -> Iterator[Finding]:
    for node in _functions(tree):
        count = len(_parameters(node)) - 1
        if node.name == "__init__" and count > MAX_ARGUMENTS:
            yield node.lineno, f"a constructor of {count} arguments, more than {MAX_ARGUMENTS}: the class is two"


def swallowed_errors(text: str, tree: ast.Module) -> Iterator[Finding]:
    for node in _nodes(tree):
        if not isinstance(node, ast.ExceptHandler):
            continue
        if node.type is None:
            yield node.lineno, "a bare except catches even the interpreter's exit: name the errors"
        elif _names(node.type) & {"Exception", "BaseException"} and all(_is_nothing(line) for line in node.body):
            yield node.lineno, "an error is swallowed: handle it, log it, or let it go"


def leftovers(text: str, tree: ast.Module) -> Iterator[Finding]:
    for number, line in enumerate(text.splitlines(), 1):
        if LEFTOVER.search(line):
            yield number, f"a leftover: {line.strip()}"


def format_skips(text: str, tree: ast.Module) -> Iterator[Finding]:
    """`fmt: skip` only where a table of data gains by it (docs/decisions/ruff-format.md)."""
    lines, ends = text.splitlines(), dict(_tables(tree)) if "# fmt: skip" in text else {}
    for number, line in enumerate(lines, 1):
        code, skip, _ = line.partition("  # fmt: skip")
        if skip and '"' not in line[len(code) :]:
            closes = [code[ends[number] :]] if number in ends else []
            closes += [code] if number - 1 in ends and not lines[number - 2][ends[number - 1] :].strip(")]},:") else []
            if all(rest.strip(" )]},:") for rest in closes):
                yield number, f"fmt: skip without a table of {TABLE_ITEMS} items: let the formatter have it"


def vague_names(text: str, tree: ast.Module) -> Iterator[Finding]:
    for node in _nodes(tree):
        if isinstance(node, ast.ClassDef) and VAGUE_NAME.search(node.name):
            yield node.lineno, f"{node.name} says nothing: use the domain's word"


def opening(text: str, tree: ast.Module) -> Iterator[Finding]:
    if text.strip() and not ast.get_docstring(tree):
        yield 1, "the file does not open with what it is for"


def whole_node(text: str, tree: ast.Module) -> Iterator[Finding]:
    """Who is handed a whole broker depends on all of it."""
    for node in _functions(tree):
        for parameter in _parameters(node):
            if parameter.annotation is not None and _names(parameter.annotation) & WHOLE_NODES:
                yield node.lineno, f"{node.name} is handed a whole node ({parameter.arg}): hand it the part it uses"


def printing(text: str, tree: ast.Module) -> Iterator[Finding]:
    for node in _nodes(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            yield node.lineno, "print: use the log, or click.echo in a command"


def clock_reads(text: str, tree: ast.Module) -> Iterator[Finding]:
    for node in _nodes(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in CLOCKS:
            yield node.lineno, f"{ast.unparse(node.func)}: the time comes in by a Clock (rmq.clock)"


def sockets(text: str, tree: ast.Module) -> Iterator[Finding]:
    """Clock, network and bounds of connections come from above; so will whatever protects them."""
    for node in _nodes(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in SOCKET_MAKERS:
            yield node.lineno, f"{ast.unparse(node.func)}: connect by the Dialer that is handed down, listen by Network.listen"


def dialers(text: str, tree: ast.Module) -> Iterator[Finding]:
    for node in _nodes(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Dialer":
            yield node.lineno, "a Dialer is made where a process or a client begins: take it as an argument"


def waiting(text: str, tree: ast.Module) -> Iterator[Finding]:
    for node in _nodes(tree):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        if name == "time.sleep" or (name in {"asyncio.sleep", "sleep"} and not _is_zero(node.args)):
            yield node.lineno, f"{name}: wait for a condition, or move the clock"


def object_builders(text: str, tree: ast.Module) -> Iterator[Finding]:
    """S14: no bytes of a file or a peer may become an arbitrary object."""
    for node in _nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom) and _imported(node) & OBJECT_BUILDERS:
            yield node.lineno, f"{ast.unparse(node)}: it builds arbitrary objects; use msgpack or JSON"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"eval", "exec"}:
            yield node.lineno, f"{node.func.id}: it runs what it reads"


def retired_words(text: str, tree: ast.Module) -> Iterator[Finding]:
    """A name is the field's word; docs/glossary.md says which ones it replaced."""
    retired = _retired_words()
    for node in _nodes(tree):
        for name in (getattr(node, field, None) for field in _NAMING if field in node._fields):
            if isinstance(name, str):
                for word in _retired_in(name):
                    yield getattr(node, "lineno", 1), f"{name}: {word} is retired, say {retired[word]} (docs/glossary.md)"


def mocking(text: str, tree: ast.Module) -> Iterator[Finding]:
    for node in _nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom) and "mock" in ast.unparse(node):
            yield node.lineno, "a mock: use a fake of time, network or disk at its port"


def private_reaches(text: str, tree: ast.Module) -> Iterator[Finding]:
    """What a test needs to know of a part, the part answers: a public question, or an inspection view."""
    own = {node.name for node in _nodes(tree) if isinstance(node, (*FUNCTIONS, ast.ClassDef))}
    attributes = [node for node in _nodes(tree) if isinstance(node, ast.Attribute)]
    own |= {node.attr for node in attributes if isinstance(node.ctx, ast.Store) and _is_own(node.value)}
    for node in _nodes(tree):
        if isinstance(node, ast.Attribute) and _is_private(node.attr) and node.attr not in own and not _is_own(node.value):
            yield node.lineno, f"{ast.unparse(node)}: another part's private name; ask it something public"
        elif isinstance(node, ast.ImportFrom) and any(_is_private(alias.name) for alias in node.names):
            yield node.lineno, f"{ast.unparse(node)}: a private name; test it by its public face"


EVERYWHERE: list[Rule] = [
    file_size,
    function_size,
    class_size,
    constructor_arguments,
    swallowed_errors,
    leftovers,
    format_skips,
    vague_names,
]
SHIPPED: list[Rule] = [opening, whole_node, printing, object_builders]
RULES: list[tuple[Rule, tuple[str, ...]]] = [
    *((rule, FOLDERS) for rule in EVERYWHERE),
    *((rule, ("rmq", "analytics")) for rule in SHIPPED),
    (clock_reads, ("rmq",)),
    (sockets, ("rmq",)),
    (dialers, ("rmq",)),
    (retired_words, ("rmq", "analytics", "pyspark_rmq")),
    (waiting, ("tests",)),
    (mocking, ("tests",)),
    (private_reaches, ("tests", "benchmarks")),
]
ONLY_HERE: dict[Rule, tuple[str, ...]] = {  # paths whose trade it is
    clock_reads: ("rmq/clock.py", "rmq/testing.py", "rmq/commands/"),
    printing: ("rmq/commands/",),
    sockets: ("rmq/net/transport/network.py",),
    dialers: ("rmq/broker/node.py", "rmq/client/client.py", "rmq/commands/shared/asking.py"),
    leftovers: ("tests/test_house.py",),
}


@pytest.mark.parametrize(("rule", "folders"), RULES, ids=lambda value: getattr(value, "__name__", ""))
def test_house(rule: Rule, folders: tuple[str, ...]) -> None:
    found = [
        f"{path}:{line}: {why}"
        for path in _files(folders)
        if not path.startswith(ONLY_HERE.get(rule, ())) and (path, rule.__name__) not in ALLOWED
        for line, why in rule(*_parsed(path))
    ]
    assert not found, "\n".join(["", *found])


def test_features_have_no_hook_that_nobody_calls() -> None:
    """A hook with a name that `Feature` does not have is silently never called."""
    hooks = {node.name for node in _functions(_parsed("rmq/broker/feature.py")[1])}
    classes = [node for path in _files(("rmq/broker",)) for node in _nodes(_parsed(path)[1]) if isinstance(node, ast.ClassDef)]
    features = [node for node in classes if "Feature" in map(ast.unparse, node.bases)]
    unknown = [
        f"{feature.name}.{method.name}"
        for feature in features
        for method in feature.body
        if isinstance(method, FUNCTIONS) and method.name.startswith("on_") and method.name not in hooks
    ]
    assert features
    assert not unknown, "a hook that `Feature` does not have is never called: take its name from rmq/broker/feature.py"


def test_attributes_begin_in_constructors() -> None:
    """What an object has is read in its class, its constructor, and those of its bases; no method adds to it later."""
    classes = [
        node for path in _files(("rmq", "analytics")) for node in _nodes(_parsed(path)[1]) if isinstance(node, ast.ClassDef)
    ]
    begun: dict[str, set[str]] = {}
    for node in classes:
        own = {each.target.id for each in node.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)}
        own |= {each.name for each in node.body if isinstance(each, FUNCTIONS)}  # setters of properties
        own |= {
            each.id for part in node.body if isinstance(part, ast.Assign) for each in part.targets if isinstance(each, ast.Name)
        }
        begun[node.name] = begun.get(node.name, set()) | own | _assigned(node, ("__init__",))
    bases = {node.name: [ast.unparse(base).partition("[")[0].split(".")[-1] for base in node.bases] for node in classes}

    def known(name: str) -> set[str]:
        return begun.get(name, set()).union(*map(known, bases.get(name, [])))

    late = {f"{node.name}.{name}" for node in classes for name in _assigned(node) - known(node.name)}
    assert len(classes) > 100
    assert not late, "an attribute that a method adds: give it its first value in __init__"


def test_allowances_are_still_needed() -> None:
    rules = {rule.__name__: rule for rule, _ in RULES}
    stale = [key for key in ALLOWED if not any(rules[key[1]](*_parsed(key[0])))]
    assert not stale, f"no longer needed: {stale}"


def test_every_alarm_rings() -> None:
    bad = "class FooManager:\n def __init__(self, a, b, c, d, e, f, g, h: Broker): print(1)\n"
    bad += "try:\n time.sleep(1)\nexcept Exception:\n pass\nimport unittest.mock, pickle\ntime.time()  # fmt: skip\n# TO" + "DO\n"
    bad += "loop.create_server(Dialer())\nnode._log\nself._next_lane = 1\n"
    bad += "def long():\n" + " x = 1\n" * 61 + "class Long:\n" + " x = 1\n" * 301 + "#\n" * 200
    silent = [rule.__name__ for rule, _ in RULES if not any(rule(bad, ast.parse(bad)))]
    assert not silent


@cache
def _files(folders: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(str(path.relative_to(ROOT)) for folder in folders for path in (ROOT / folder).rglob("*.py")))


@cache
def _parsed(path: str) -> tuple[str, ast.Module]:
    text = (ROOT / path).read_text(encoding="utf-8")
    return text, ast.parse(text)


@cache
def _nodes(tree: ast.Module) -> list[ast.AST]:
    """All that rules look at, which is much less than all: each rule looks at all files."""
    return [node for node in ast.walk(tree) if not isinstance(node, ast.expr_context | ast.operator | ast.cmpop | ast.Constant)]


@cache
def _retired_in(name: str) -> list[str]:
    return sorted({name.strip("_"), *map(str.lower, _WORD.findall(name))} & _retired_words().keys())


@cache
def _retired_words() -> dict[str, str]:
    """word -> what to say instead. A word with a capital is a whole name, any other a part of names."""
    rows = (ROOT / "docs/glossary.md").read_text(encoding="utf-8").partition("## Retired words")[2].splitlines()
    found = [row.strip("| ").split(" | ") for row in rows if row.startswith("| ")][1:]
    return {word: instead for words, instead in found for word in words.split(", ")}


def _tables(tree: ast.Module) -> Iterator[tuple[int, int]]:
    """Where displays, unions and calls of many items end: line and column."""
    for node in _nodes(tree):
        items = 0
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            items = len(node.elts)
        elif isinstance(node, ast.Dict):
            items = len(node.keys)
        elif isinstance(node, ast.Call):
            items = len(node.args)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            items = ast.unparse(node).count(" | ") + 1
        if items >= TABLE_ITEMS:
            yield node.end_lineno or 0, node.end_col_offset or 0


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in _nodes(tree) if isinstance(node, FUNCTIONS))


def _assigned(node: ast.ClassDef, methods: tuple[str, ...] = ()) -> set[str]:
    """The attributes of `self` that these methods of the class, or all of them, assign."""
    parts = [part for part in node.body if isinstance(part, FUNCTIONS) and (not methods or part.name in methods)]
    stored = [
        each for part in parts for each in ast.walk(part) if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store)
    ]
    return {each.attr for each in stored if isinstance(each.value, ast.Name) and each.value.id == "self"}


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.arg]:
    return [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]


def _lines(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _names(node: ast.expr) -> set[str]:
    """Every plain name in an annotation or an except clause, quoted ones too."""
    return set(re.findall(r"\w+", ast.unparse(node)))


def _imported(node: ast.Import | ast.ImportFrom) -> set[str]:
    names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
    return {name.partition(".")[0] for name in names}


def _is_private(name: str) -> bool:
    return (
        name.startswith("_")
        and not name.startswith("__")
        and name not in {"_replace", "_make", "_asdict", "_fields", "_field_defaults"}
    )


def _is_own(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and value.id in {"self", "cls"}


def _is_nothing(line: ast.stmt) -> bool:
    return isinstance(line, ast.Pass | ast.Continue) or (isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant))


def _is_zero(arguments: list[ast.expr]) -> bool:
    return len(arguments) == 1 and isinstance(arguments[0], ast.Constant) and arguments[0].value == 0
