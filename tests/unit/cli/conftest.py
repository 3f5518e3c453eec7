"""A command line against brokers in memory."""

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from helpers.driven_brokers import Driven, DrivenRunner, driven_brokers
from helpers.log_events import log_of_its_own
from tidelog.cli import connection
from tidelog.cli.main import run


@dataclass
class Result:
    exit_code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()

    @property
    def error(self) -> str:
        """The one line of the standard error."""
        assert self.err.count("\n") == 1, self.err
        assert self.err.startswith("tidelog: ")
        assert "Traceback" not in self.err
        return self.err.strip()


Tidelog = Callable[..., Result]


Served = tuple[Driven, DrivenRunner]


@pytest.fixture
def own() -> Iterator[Served]:
    """Three brokers on a loop of their own."""
    with driven_brokers() as served:
        yield served


@pytest.fixture(scope="module")
def shared() -> Iterator[Served]:
    """A cluster for all tests of a module that change nothing and ask for it (`SHARED`). It has topics `events` and `t`."""
    with driven_brokers() as served:
        cluster, _ = served
        cluster.create("events", partitions=3)
        cluster.create("t")
        yield served


SHARED = pytest.mark.usefixtures("shared")


@pytest.fixture
def cluster(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driven]:
    """Commands run in the loop of the brokers too."""
    found: Served = request.getfixturevalue("shared" if "shared" in request.fixturenames else "own")
    cluster, runner = found
    monkeypatch.setattr("tidelog.runtime.loop.run", runner.run)
    with log_of_its_own():  # a command sets a level, and may leave a handler that writes to its closed output
        yield cluster


@pytest.fixture
def tidelog(
    cluster: Driven,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
    tmp_path: Path,
) -> Tidelog:
    """Runs a command in an empty directory; `stdin` is what is piped into it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(connection, "ports", lambda _: cluster.ports)
    monkeypatch.setenv("TIDELOG_BOOTSTRAP_SERVERS", cluster.bootstrap)

    def call(*args: str, stdin: bytes = b"") -> Result:
        piped = tmp_path / "stdin"
        piped.write_bytes(stdin)
        with piped.open("rb") as stream:
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(stream))
            code = run(args)
        captured = capfdbinary.readouterr()
        return Result(code, captured.out, captured.err.decode())

    return call


@pytest.fixture
def events(cluster: Driven) -> Driven:
    """A topic of three partitions, led by brokers 1 to 3, which are the preferred leaders in this order."""
    if "events" not in cluster.topics:
        cluster.create("events", partitions=3)
    return cluster
