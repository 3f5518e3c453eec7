"""Which way imports run. The table is MAY_IMPORT in scripts/check.py; a failure prints the offending line."""

from pathlib import Path

import pytest

from helpers.scripts import load_script

check = load_script("check")


def planted(tmp_path: Path, files: dict[str, str]) -> list[str]:
    """Problems of a tree that holds only `files` (path below services/tidelog -> source)."""
    for name, text in files.items():
        path = tmp_path / "services" / "tidelog" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return [str(problem) for problem in check.check_tree(tmp_path)]


def test_the_table_has_a_direction() -> None:
    assert check.table_circles() == []


@pytest.mark.parametrize(
    ("path", "line", "complaint"),
    [
        ("replica/leader.py", "import asyncio", "replica.leader is pure and may not import asyncio"),
        ("replica/leader.py", "from random import choice", "replica.leader is pure"),
        ("replica/leader.py", "from tidelog.storage.segment import Segment", "may not import tidelog.storage.segment"),
        ("controller/machine.py", "import subprocess", "controller.machine is pure"),
        ("controller/machine.py", "from tidelog.broker.app import Broker", "may not import tidelog.broker"),
        ("controller/app.py", "from tidelog.broker.app import Broker", "may not import tidelog.broker"),
        ("client/accumulator.py", "from tidelog.runtime.clock import SystemClock", "may not import tidelog.runtime"),
        ("storage/segment.py", "import os", "storage.segment is pure"),
        ("broker/app.py", "from tidelog import testing", "may not import tidelog.testing"),
        ("broker/app.py", "import kazoo.client", "kazoo is imported in runtime.zk alone"),
        ("broker/app.py", "from grpc import aio", "grpc is imported in runtime.rpc_ alone"),
        ("broker/app.py", "from tidelog.wire.pb import common_pb2", "tidelog.wire.pb is imported in wire.codec"),
        ("broker/app.py", "from . import produce", "relative import"),
        ("pipeline/source.py", "from tidelog.broker import app", "may not import tidelog.broker"),
        ("surprise/thing.py", "x = 1", "surprise.thing has no row"),
    ],
)
def test_a_planted_import_is_found_with_its_line(tmp_path: Path, path: str, line: str, complaint: str) -> None:
    (problem,) = planted(tmp_path, {path: f'"""Doc."""\n\n\ndef f() -> None:\n    {line}\n'})[:1]
    assert complaint in problem
    if "no row" not in complaint:
        assert problem.startswith(f"services/tidelog/{path}:5:") and problem.endswith(line)


def test_shells_may_do_what_their_pure_neighbours_may_not(tmp_path: Path) -> None:
    shell = "import asyncio\nfrom tidelog.runtime.tasks import Supervisor\n"
    assert planted(tmp_path, {"controller/app.py": shell}) == []
    assert len(planted(tmp_path, {"controller/app.py": shell, "controller/machine.py": shell})) == 2


def test_a_circle_is_named_along_its_way(tmp_path: Path) -> None:
    problems = planted(
        tmp_path,
        {
            "replica/a.py": "from tidelog.replica import b\n",
            "replica/b.py": "from tidelog.replica.c import f\n",
            "replica/c.py": "def f() -> None:\n    import tidelog.replica.a\n",
        },
    )
    assert len(problems) == 1
    assert "circle of imports: replica.a -> replica.b -> replica.c -> replica.a" in problems[0]
