"""From a scenario file to a verdict: a directory for the run, a cluster, the run in an event loop of its own, the judgement."""

import asyncio
import errno
import fcntl
import os
import shutil
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Final

from tidelog.chaos import agents, scenario_file
from tidelog.chaos.checker.verdict import EXIT_BROKEN, EXIT_NO_VERDICT, Verdict
from tidelog.chaos.checking import HISTORY, PARQUET, RUN, CannotCheck, save_verdict
from tidelog.chaos.clusters import Clusters
from tidelog.chaos.faults.base import InForce, On
from tidelog.chaos.history import HistoryDamaged
from tidelog.chaos.metrics import ChaosMetrics
from tidelog.chaos.run import NoVerdict, Run, Unkept, Watcher
from tidelog.chaos.run_files import PLAYED, SCENARIO_FILE, RunFile, judge
from tidelog.chaos.scenario import ClusterShape, Column, Scenario
from tidelog.chaos.workload import GROUP
from tidelog.chaos.yaml_nodes import ScenarioError
from tidelog.client.admin import Admin
from tidelog.cluster.api import Cluster, ClusterError, bootstrap_servers
from tidelog.errors import TidelogError, TransportError
from tidelog.ports.clock import Clock
from tidelog.runtime import loop

RUNS_DIR: Final = Path("data/chaos")
HARNESS: Final = "harness.txt"
"""The traceback of a harness that failed."""
LOG_LINES: Final = 5_000
DELETED_WITHIN_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be run."""

    path: Path
    scenario: Scenario
    on: On
    seed: int
    duration_s: float | None = None
    """None: the scenario's own."""
    directory: Path | None = None
    """None: the next free one below RUNS_DIR."""
    column: Column = Column.ALL_2
    """That `scenario` is in."""
    keep_topic: bool = False
    """Else the topic of the load is deleted in the end, unless a promise was broken."""


@dataclass(frozen=True, slots=True)
class Outcome:
    directory: Path
    file: RunFile
    verdict: Verdict | None
    """None: there is nothing to judge; `file.ended` says why, as it does of a run that was broken before it came to its end."""
    servers: str = ""
    """The bootstrap servers of the cluster."""

    @property
    def exit_code(self) -> int:
        return EXIT_NO_VERDICT if self.verdict is None else self.verdict.exit_code


def order(
    name: str,
    on: On,
    seed: int | None,
    duration_s: float | None = None,
    directory: Path | None = None,
    column: Column = Column.ALL_2,
) -> Order:
    """ScenarioError when it is unknown, wrong, or not to be played there."""
    path = scenario_file.find(name)
    scenario = scenario_file.load(path).in_column(column)
    if on not in scenario.runs_in:
        where = (
            f"runs on {', '.join(scenario.runs_in)}"
            if scenario.runs_in
            else f"runs in the simulator only: {scenario.simulator}"
        )
        raise ScenarioError(f"{scenario.name} {where}")
    drawn = Random().randrange(2**31) if seed is None else seed
    return Order(path, scenario, on, drawn, duration_s, directory, column)


def launch(order: Order, clusters: Clusters, clock: Clock, watcher: Watcher, metrics: ChaosMetrics) -> Outcome:
    """One run. KeyboardInterrupt comes through when everything is healed; whatever there is by then is in the directory.

    ScenarioError when the directory holds another run. OSError, with a file or a directory, when the run cannot be written down.
    """
    directory = order.directory or next_directory(order.scenario.name)
    directory.mkdir(parents=True, exist_ok=True)
    held = os.open(directory, os.O_RDONLY)  # by which scripts/clean.sh knows that it is in use
    try:
        _refuse_another_run(directory, held)
        return _launch(order, directory, clusters, clock, watcher, metrics)
    except OSError as error:
        room = "; `make clean` removes old runs" if error.errno == errno.ENOSPC else ""
        raise OSError(error.errno, f"{error.strerror}{room}", error.filename or str(directory)) from error
    finally:
        os.close(held)


def _refuse_another_run(directory: Path, held: int) -> None:
    """`held` locks the directory until it is closed. ScenarioError."""
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ScenarioError(f"another run writes into {directory}; choose another directory") from None
    if any((directory / name).exists() for name in (SCENARIO_FILE, HISTORY, RUN)):
        raise ScenarioError(f"{directory} holds a run already; choose another directory, or delete this one")


def _launch(
    order: Order, directory: Path, clusters: Clusters, clock: Clock, watcher: Watcher, metrics: ChaosMetrics
) -> Outcome:
    scenario = order.scenario
    shutil.copyfile(order.path, directory / SCENARIO_FILE)
    rand = Random(order.seed)
    file = RunFile(
        name=scenario.name,
        row=scenario.row,
        title=scenario.title,
        seed=order.seed,
        on=order.on.value,
        duration_s=order.duration_s or scenario.duration_s,
        topics=[
            scenario.topic.name or f"chaos-{Random().randbytes(4).hex()}",
            *(() if scenario.aim is None else (scenario.aim,)),
        ],
        partitions=scenario.topic.partitions,
        group=_group(scenario),
        column=order.column,
        started_wall_ms=clock.wall_ms(),
    )
    cluster: Cluster | None = None
    verdict: Verdict | None = None
    try:
        began = clock.now()
        cluster = clusters.of(_shape(scenario, file.topics[0], directory), watcher.say)
        with InForce() as in_force:
            run = Run(scenario, file, cluster, directory, clock, rand, watcher, in_force, metrics)
            loop.run(run.play())
        file.ended = PLAYED
        file.write(directory)
        watcher.phase("verdict")
        verdict = judge(directory)
        file.overhead_s = round(clock.now() - began - min(file.duration_s, file.seconds), 3)
    except Unkept as error:
        file.ended = str(error)
        file.unkept.append(error.kept)
        file.write(directory)
        verdict = judge(directory)
    except (NoVerdict, CannotCheck, HistoryDamaged, ClusterError) as error:
        file.ended = f"no verdict: {error}"
        file.write(directory)
        verdict = broken_so_far(directory)
    except Exception as error:  # noqa: BLE001 - a mistake of the harness is no broken promise of the cluster
        file.ended = f"no verdict: the harness failed: {type(error).__name__}: {error}"
        file.write(directory)
        (directory / HARNESS).write_text(traceback.format_exc())
        verdict = broken_so_far(directory)
    finally:
        try:
            file.write(directory)
        finally:  # also when the disk of the runs is full
            if cluster is not None and file.created and not order.keep_topic:
                _end_topic(cluster, file.topics[0], verdict, watcher.say)
    if verdict is not None:
        save_verdict(directory, verdict)
    if cluster is not None and (verdict is None or verdict.exit_code):
        _save_logs(cluster, directory / "logs")
    if (directory / HISTORY).exists():
        save_parquet(directory)
        from tidelog.chaos.report.page import write_report  # it draws with Bokeh, which takes its time to load

        write_report(directory)
    return Outcome(directory, file, verdict, "" if cluster is None else bootstrap_servers(cluster))


def _end_topic(cluster: Cluster, topic: str, verdict: Verdict | None, say: Callable[[str], None]) -> None:
    """Deletes it unless a promise was broken: an alert that nothing arrives would fire for a topic that is left."""
    if verdict is not None and verdict.exit_code == EXIT_BROKEN:
        say(f"topic {topic} is kept, since a promise was broken; `tidelog topics delete {topic}` deletes it")
        return

    async def delete() -> None:
        async with asyncio.timeout(DELETED_WITHIN_S), Admin(bootstrap_servers(cluster)) as admin:
            await admin.delete_topic(topic)

    try:
        loop.run(delete())
    except (TidelogError, TransportError, TimeoutError):
        say(f"topic {topic} is left; `tidelog topics delete {topic}` deletes it")


def _group(scenario: Scenario) -> str | None:
    consumers = scenario.workload.consumers
    return agents.GROUP if consumers.agents else GROUP if consumers.group else None


def _shape(scenario: Scenario, topic: str, directory: Path) -> ClusterShape:
    """With the agents that the workload asks for, which write into the run's directory."""
    count = scenario.workload.consumers.agents
    if not count:
        return scenario.cluster
    (directory / agents.FOLDER).mkdir()
    settings = {**scenario.cluster.settings, **agents.settings(topic, directory, count)}
    return replace(scenario.cluster, agents=count, settings=settings)


def broken_so_far(directory: Path) -> Verdict | None:
    """Of a run that came to no end, if what there is of it shows an anomaly; else None, and nothing is known."""
    try:
        verdict = judge(directory)
    except (CannotCheck, HistoryDamaged):
        return None
    return None if verdict.sound else verdict


def save_parquet(directory: Path) -> None:
    """history.parquet; without PyArrow, or of a history that makes no sense, there is none."""
    path = directory / PARQUET
    try:
        from tidelog.chaos.history_parquet import write_parquet  # PyArrow comes with the extra `spark` alone

        write_parquet(directory / HISTORY, path)
    except ImportError:
        return
    except HistoryDamaged:  # who asked for the verdict was told
        path.unlink(missing_ok=True)


def next_directory(name: str, below: Path = RUNS_DIR) -> Path:
    """Makes the first one that is not there yet. OSError."""
    below.mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        directory = below / f"{name}-{number}"
        try:
            directory.mkdir()
            return directory
        except FileExistsError:
            number += 1


def _save_logs(cluster: Cluster, directory: Path) -> None:
    directory.mkdir(exist_ok=True)
    for name in cluster.names():
        (directory / f"{name}.log").write_text(cluster.logs(name, LOG_LINES))
