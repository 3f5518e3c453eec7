#!/usr/bin/env python3
"""The house rules that no off-the-shelf linter knows: which way imports run, sizes, and calls with one home each.

Every rule is data at the top of this file. A problem is printed as `path:line: what is wrong` and the line itself.
"""

import argparse
import ast
import gc
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "tidelog"
FUNCTION_LINES_MAX = 70
CHECKED_FOLDERS = ("services", "tests", "scripts")
GENERATED = (
    "services/tidelog/wire/pb/",
    "services/tidelog/wire/messages.py",
    "services/tidelog/wire/messages.pyi",
    "services/tidelog/wire/services.py",
)

_PLAIN = "ids errors names release setting_types sizes topic_config values"
_EDGES = f"{_PLAIN} config ports wire runtime"

MAY_IMPORT: Mapping[str, str] = {
    # module or package below tidelog -> what of ours it may import besides itself; the longest name that fits counts
    "__init__": "client errors ids release",
    "ids": "",
    "errors": "",
    "names": "errors",
    "release": "",
    "values": "",
    "topic_config": "errors names",
    "setting_types": "",
    "sizes": "errors",
    "config": _PLAIN,
    "ports": "ids errors values",
    "wire": f"{_PLAIN} ports",
    "wire.pb": "",
    "watch": f"{_PLAIN} ports wire",
    "watch.follower": f"{_EDGES} client",
    "storage": f"{_PLAIN} ports wire",
    "replica": f"{_PLAIN} wire",
    "controller": f"{_PLAIN} wire",
    "controller.operations": f"{_PLAIN} wire ports.meta",  # writes as data: Create, SetData, Delete, Check
    "coordinator": f"{_PLAIN} wire",
    "coordinator.operations": f"{_PLAIN} wire ports.meta",
    "client": f"{_PLAIN} wire",
    "model": "",  # the rules stated once more, from the documents alone
    "runtime": f"{_PLAIN} config ports watch wire",
    "broker": f"{_EDGES} storage replica coordinator watch",
    "agent": f"{_EDGES} client watch",
    "traffic": f"{_EDGES} client",
    "pipeline": f"{_EDGES} client",
    "pipeline.jobs.audit": f"{_EDGES} storage client cluster chaos",  # judges what chaos runs leave
    "cluster": f"{_EDGES} client",
    "exporter": "config ids runtime",
    "chaos": f"{_EDGES} storage client cluster page watch",
    "chaos.spark_reader": f"{_EDGES} client cluster pipeline",  # Spark as one of a run's readers
    "chaos.checker": "ids chaos.history",
    "chaos.history": "errors ids",
    "chaos.notes": "ids client chaos.history chaos.outcomes",
    "cli": f"{_EDGES} storage client cluster broker controller agent chaos pipeline lab page watch",
    "page": f"{_EDGES} watch",
    "page.live": f"{_EDGES} client watch",
    "page.overview_picture": f"{_EDGES} client",
    "lab": (
        f"{_EDGES} client broker page replica storage watch testing "
        "chaos.checker chaos.history chaos.outcomes chaos.quantities chaos.yaml_nodes"
    ),
    "testing": (
        f"{_EDGES} storage replica controller coordinator client broker watch chaos.checker chaos.history chaos.notes"
    ),
}

SHELL_ROW = "config ports runtime watch"
SHELLS = (
    # modules of otherwise pure packages that run effects; they may import SHELL_ROW beyond their package's row
    *(
        f"controller.{name}"
        for name in ("app", "channels", "liveness", "record", "service", "store", "term", "__main__")
    ),
    *(
        f"coordinator.{name}"
        for name in ("election", "ends", "record", "service", "shards", "store", "term", "topics", "turns")
    ),
    *(f"client.{name}" for name in ("coordinators", "groups", "group_admin", "group_session", "log_admin")),
    *(
        f"client.{name}"
        for name in ("admin", "changes", "connections", "consumer", "fetcher", "gate", "metadata", "record")
    ),
    *(
        f"client.{name}"
        for name in ("observer", "offsets", "produce_link", "producer", "range_reader", "reassignments", "sync")
    ),
    *(f"model.{name}" for name in ("runner", "__main__")),
    "watch.follower",
    "watch.logged",
)

PURE = (
    "ids",
    "errors",
    "names",
    "release",
    "setting_types",
    "sizes",
    "topic_config",
    "values",
    "ports",
    "watch",
    "wire",
    "storage",
    "replica",
    "controller",
    "coordinator",
    "client",
    "model",
    "chaos.checker",
    "chaos.notes",
    "chaos.outcomes",
)
NOT_IN_PURE = (
    *("asyncio", "concurrent", "grpc", "kazoo", "logging", "multiprocessing", "os", "random", "select", "selectors"),
    *("shutil", "signal", "socket", "subprocess", "tempfile", "threading", "time"),
)

REGISTRIES = (
    *(
        "agent.__main__",
        "broker.__main__",
        "controller.__main__",
        "pipeline.jobs.streaming",
        "testing",
        "traffic.__main__",
    ),
)
"""Who makes the registry in which a process keeps its metrics."""

ONLY_IN: Mapping[str, tuple[str, ...]] = {
    # outside library or own module -> the only modules that may import it
    "aiokafka": ("client", "pipeline", "testing"),
    "docker": ("cluster",),
    "google.protobuf": ("wire.codec", "wire.pb"),
    "grpc": ("runtime.rpc_",),
    "grpc_health": ("runtime.rpc_",),
    "grpc_reflection": ("runtime.rpc_",),
    "kazoo": ("runtime.zk",),
    "prometheus_client": (
        "chaos.metrics",
        "chaos.observe",
        "exporter",
        "pipeline.jobs.metrics",
        "runtime.metrics",
        "runtime.metrics_server",
        "runtime.agent_metrics",
        "runtime.group_metrics",
        "runtime.partition_metrics",
        "runtime.tallies",
        "runtime.traffic_metrics",
        *REGISTRIES,
    ),
    "pyspark": ("pipeline",),
    "re2": ("coordinator.subscription",),
    "rich": ("cli",),
    "tidelog.wire.pb": ("wire.codec", "wire.pb"),
    "typer": ("cli",),
    "uvloop": ("runtime.loop",),
}

ADAPTERS = ("runtime", "cluster", "cli", "testing", "pipeline")
"""Where the outside world may be touched directly; everything else goes through a port."""

TASKS_HOME = "runtime.tasks"
BROAD_EXCEPT: Mapping[str, str] = {
    TASKS_HOME: "the one place that logs, counts and stops the group",
    "cli.main": "ends the command with a line, and a file with the traceback",
    "chaos.launch": "a run whose harness fails is kept, with the traceback, and what there is of it is judged",
}
"""Module -> why it may catch everything."""

BANNED_CALLS: Mapping[str, tuple[tuple[str, ...], str]] = {
    # name of the called thing -> (modules that may call it, what to use instead)
    "time.time": (ADAPTERS, "the Clock port"),
    "time.time_ns": (ADAPTERS, "the Clock port"),
    "time.monotonic": (ADAPTERS, "the Clock port"),
    "time.monotonic_ns": (ADAPTERS, "the Clock port"),
    "time.perf_counter": (ADAPTERS, "the Clock port"),
    "time.sleep": (("cluster", "cli"), "the Clock port"),
    "asyncio.sleep": (("runtime", "testing"), "the Clock port"),
    "open": (ADAPTERS, "the Disk port"),
    "print": (("cli",), "the log"),
}
BANNED_MODULE_CALLS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "random": (("runtime", "cluster", "testing", "client.connections"), "the Rand port"),
    "secrets": (("runtime", "cluster"), "the Rand port"),
}
TASK_MAKERS = frozenset({"create_task", "ensure_future"})
RUNNERS = frozenset({"run", "run_until_complete"})
"""Functions that run a coroutine on a loop; the last names, since every module imports them in its own way."""
LOOP_TESTS = ("tests/unit/testing/test_loop.py", "tests/unit/testing/test_drive.py")
"""Tests of the loop itself call `run` to see what it raises and what it leaves behind."""
LEFTOVER = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK")) + r")\b")


@dataclass(frozen=True, slots=True)
class Problem:
    path: str
    line: int
    text: str
    source: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}\n    {self.source.strip()}"


@dataclass(frozen=True, slots=True)
class Source:
    """One parsed file. `module` is its name below tidelog ("wire.codec", "__init__"), or None outside the package."""

    path: str
    module: str | None
    text: str
    tree: ast.Module

    def problem(self, line: int, text: str) -> Problem:
        lines = self.text.splitlines()
        return Problem(self.path, line, text, lines[line - 1] if 0 < line <= len(lines) else "")


def within(module: str, names: Iterable[str]) -> bool:
    """`wire.codec` is within `wire`; a name that ends with _ stands for every module that begins so."""
    return any(module == n or module.startswith(n if n.endswith("_") else f"{n}.") for n in names)


def longest(module: str, table: Iterable[str]) -> str | None:
    return max((name for name in table if within(module, (name,))), key=len, default=None)


def is_pure(module: str) -> bool:
    return within(module, PURE) and not within(module, SHELLS)


def imported(source: Source) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of every import, also those inside functions and `if TYPE_CHECKING`."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                yield node.lineno, "." * node.level + (node.module or "")
            else:
                for alias in node.names:
                    yield node.lineno, f"{node.module}.{alias.name}"


def import_problems(source: Source) -> Iterator[Problem]:
    module = source.module
    if module is None:
        return
    row = longest(module, MAY_IMPORT)
    if row is None:
        yield source.problem(1, f"{module} has no row in the import table (MAY_IMPORT)")
        return
    allowed = [*MAY_IMPORT[row].split(), row.split(".")[0]]
    if within(module, SHELLS):
        allowed += SHELL_ROW.split()
    for line, name in imported(source):
        if name.startswith("."):
            yield source.problem(line, "relative import; write the full name")
            continue
        if name.startswith(f"{PACKAGE}.") and not within(name.removeprefix(f"{PACKAGE}."), allowed):
            yield source.problem(line, f"{module} may not import {name}: its row allows {' '.join(sorted(allowed))}")
        if is_pure(module) and name.split(".")[0] in NOT_IN_PURE:
            yield source.problem(line, f"{module} is pure and may not import {name}")
        for library, homes in ONLY_IN.items():
            if (name == library or name.startswith(f"{library}.")) and not within(module, homes):
                yield source.problem(line, f"{library} is imported in {', '.join(homes)} alone, not in {module}")


def task_groups(tree: ast.Module) -> set[str]:
    """Names bound by `async with asyncio.TaskGroup() as name`: what they start ends with the block."""
    items = (item for node in ast.walk(tree) if isinstance(node, ast.AsyncWith) for item in node.items)
    made = (item for item in items if ast.unparse(item.context_expr).endswith("TaskGroup()"))
    return {ast.unparse(item.optional_vars) for item in made if item.optional_vars is not None}


def call_problems(source: Source) -> Iterator[Problem]:
    module = source.module
    if module is None:
        return
    is_main = module.endswith("__main__")
    groups = task_groups(source.tree)
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        if name in BANNED_CALLS:
            homes, instead = BANNED_CALLS[name]
            if not within(module, homes) and not (is_main and name != "print"):
                yield source.problem(node.lineno, f"{name}() in {module}; use {instead}")
        head, _, tail = name.partition(".")
        if head in BANNED_MODULE_CALLS and tail:
            homes, instead = BANNED_MODULE_CALLS[head]
            if not within(module, homes) and not is_main:
                yield source.problem(node.lineno, f"{name}() in {module}; use {instead}")
        owner, _, method = name.rpartition(".")
        if method in TASK_MAKERS and owner not in groups and module != TASKS_HOME:
            yield source.problem(
                node.lineno, f"{name}() has no owner; use the Supervisor of {TASKS_HOME} or an asyncio.TaskGroup"
            )


def except_problems(source: Source) -> Iterator[Problem]:
    if source.module is None or source.module in BROAD_EXCEPT:
        return
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.ExceptHandler):
            continue
        caught = (
            {"all"} if node.type is None else {ast.unparse(n) for n in ast.walk(node.type) if isinstance(n, ast.Name)}
        )
        if caught & {"all", "Exception", "BaseException"}:
            yield source.problem(node.lineno, f"catches everything; that is for {', '.join(BROAD_EXCEPT)} alone")


def coroutine_problems(source: Source) -> Iterator[Problem]:
    """A sync test that runs a coroutine of its own chooses the loop by itself; for an async test the plugin chooses it."""
    if not source.path.startswith("tests/") or source.path in LOOP_TESTS:
        return
    for test in ast.walk(source.tree):
        if not (isinstance(test, ast.FunctionDef) and test.name.startswith("test_")):
            continue
        own = {node.name for node in ast.walk(test) if isinstance(node, ast.AsyncFunctionDef)}
        for call in ast.walk(test):
            if not isinstance(call, ast.Call) or ast.unparse(call.func).rpartition(".")[2] not in RUNNERS:
                continue
            given = [*call.args, *(keyword.value for keyword in call.keywords)]
            names = {node.id for each in given for node in ast.walk(each) if isinstance(node, ast.Name)}
            if own & names:
                yield source.problem(call.lineno, "a coroutine of its own; make the test async def")


def size_problems(source: Source) -> Iterator[Problem]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES_MAX:
                yield source.problem(node.lineno, f"{node.name} has {length} lines; at most {FUNCTION_LINES_MAX}")


def leftover_problems(path: str, text: str) -> Iterator[Problem]:
    for number, line in enumerate(text.splitlines(), 1):
        if found := LEFTOVER.search(line):
            yield Problem(path, number, f"leftover marker {found[0]}", line)


def circles(edges: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """One circle through each strongly connected part, as the list of names along it."""
    found: list[list[str]] = []
    done: set[str] = set()

    def visit(name: str, trail: list[str]) -> None:
        if name in trail:
            found.append([*trail[trail.index(name) :], name])
            return
        if name in done:
            return
        for other in sorted(edges.get(name, ())):
            visit(other, [*trail, name])
        done.add(name)

    for name in sorted(edges):
        visit(name, [])
    return found


def circle_problems(sources: list[Source]) -> Iterator[Problem]:
    modules = {s.module: s for s in sources if s.module is not None}
    edges: dict[str, set[str]] = {}
    lines: dict[tuple[str, str], int] = {}
    for module, source in modules.items():
        for line, name in imported(source):
            target = name.removeprefix(f"{PACKAGE}.")
            if name.startswith(f"{PACKAGE}.") and target not in modules:
                target = target.rpartition(".")[0]  # from tidelog.ids import BrokerId
            if name.startswith(f"{PACKAGE}.") and target in modules and target != module:
                edges.setdefault(module, set()).add(target)
                lines.setdefault((module, target), line)
    for circle in circles(edges):
        source = modules[circle[0]]
        yield source.problem(lines[circle[0], circle[1]], "circle of imports: " + " -> ".join(circle))


def table_circles() -> list[list[str]]:
    """The table itself must have a direction; a part within a package stands for the package's row."""
    return circles({row: row_allows.split() for row, row_allows in MAY_IMPORT.items()})


def module_name(path: Path, root: Path) -> str | None:
    try:
        parts = list(path.relative_to(root / "services" / PACKAGE).with_suffix("").parts)
    except ValueError:
        return None
    if parts[-1] == "__init__" and len(parts) > 1:
        parts.pop()
    return ".".join(parts)


def parse(path: Path, root: Path) -> Source:
    text = path.read_text()
    gc.disable()  # a finalizer that prints a traceback parses too, and CPython 3.11 suffers no second tree meanwhile (gh-106905)
    try:
        tree = ast.parse(text)
    finally:
        gc.enable()
    return Source(str(path.relative_to(root)), module_name(path, root), text, tree)


def check_source(source: Source) -> list[Problem]:
    return [
        *import_problems(source),
        *call_problems(source),
        *except_problems(source),
        *coroutine_problems(source),
        *size_problems(source),
        *leftover_problems(source.path, source.text),
    ]


def check_tree(root: Path) -> list[Problem]:
    """Problems of every Python file below `root`, and of the import table itself."""
    files = [p for folder in CHECKED_FOLDERS for p in sorted((root / folder).rglob("*.py"))]
    hand_written = [p for p in files if not str(p.relative_to(root)).startswith(GENERATED)]
    sources = [parse(p, root) for p in hand_written]
    problems = [problem for source in sources for problem in check_source(source)]
    for pattern in ("proto/**/*.proto", "scripts/**/*.sh", "images/**/*", "deploy/**/*.yaml", "deploy/**/*.yml"):
        for path in sorted(p for p in root.glob(pattern) if p.is_file()):
            problems += leftover_problems(str(path.relative_to(root)), path.read_text(errors="replace"))
    problems += [Problem("scripts/check.py", 1, "circle in MAY_IMPORT", " -> ".join(c)) for c in table_circles()]
    return problems + list(circle_problems(sources))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", nargs="?", type=Path, default=ROOT, help="a checkout (default: this one)")
    problems = check_tree(parser.parse_args().root.resolve())
    for problem in problems:
        print(problem)
    if problems:
        sys.exit(f"check.py: {len(problems)} problems")


if __name__ == "__main__":
    main()
