"""What a run leaves in its directory beside the history and the samples, and what is made of all of it: the verdict."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final, Self

from tidelog.chaos import expect, samples, scenario_file
from tidelog.chaos.checker.promise import Availability, Promise
from tidelog.chaos.checker.replicas import PartitionReplicas
from tidelog.chaos.checker.verdict import Kept, Verdict
from tidelog.chaos.checking import HISTORY, REPLICAS, RUN, CannotCheck, check_run, read_replicas
from tidelog.chaos.facts import Facts
from tidelog.chaos.fault_player import PlayedFault
from tidelog.chaos.history import HistoryReader
from tidelog.chaos.premises import premises
from tidelog.chaos.scenario import Column, Scenario, TopicShape
from tidelog.chaos.verifiable_consumer import POLL_RECORDS
from tidelog.chaos.yaml_nodes import ScenarioError
from tidelog.ids import TopicPartition
from tidelog.release import VERSION

SCENARIO_FILE: Final = "scenario.yaml"
PLAYED: Final = "played"
"""How a run ends that came to its end."""
WHOLE_WITHIN_S: Final = 60.0
LOSS_ANOMALIES: Final = ("lost-write", "lost-acked", "allowed-loss")
LOOP_LAG_MAX_S: Final = 0.5
"""What a history says about gaps is no better than the loop that wrote it."""


@dataclass(slots=True)
class RunFile:
    """run.json."""

    name: str
    row: int | None
    title: str
    seed: int
    on: str
    duration_s: float
    """From the first fault's time base to the healing: what the scenario asks for."""
    topics: list[str]
    partitions: int
    group: str | None = None
    column: Column = Column.ALL_2
    started_wall_ms: int = 0
    version: str = VERSION
    faults: list[PlayedFault] = field(default_factory=list)
    affected: list[int] = field(default_factory=list)
    """Partitions of the topic that a target led when it was hit."""
    left_out: list[str] = field(default_factory=list)
    """Faults that were drawn and took no effect, and why."""
    promise: dict[str, Any] = field(default_factory=dict)
    """As the checker reads it."""
    acked: int = 0
    seconds: float = 0.0
    """From the start of the load to the last file."""
    overhead_s: float = 0.0
    """The time that a run takes beside its load and faults: to set up, heal, read everything back and judge."""
    loop_lag_worst_s: float = 0.0
    """How late the event loop was that sent, read and wrote the history."""
    loop_late: int = 0
    created: bool = False
    """The topic of the load was made by this run."""
    rotten: list[tuple[int, int]] = field(default_factory=list)
    """(broker, partition) of copies in which a fault has flipped a bit that no scrub has found yet. They are not compared."""
    unkept: list[Kept] = field(default_factory=list)
    """Promises that the run itself saw broken after everything was healed."""
    ended: str = "interrupted"
    """played; interrupted; or why there is no verdict."""

    def write(self, directory: Path) -> None:
        (directory / RUN).write_text(json.dumps(asdict(self), indent=2) + "\n")

    @classmethod
    def read(cls, directory: Path) -> Self:
        """CannotCheck."""
        try:
            found: dict[str, Any] = json.loads((directory / RUN).read_text())
            found["faults"] = [PlayedFault(**each) for each in found["faults"]]
            found["rotten"] = [(broker, partition) for broker, partition in found.get("rotten", ())]
            found["unkept"] = [Kept(**each) for each in found.get("unkept", ())]
            found["column"] = Column(found.get("column", Column.ALL_2))
            known = {each.name for each in fields(cls)}
            return cls(**{key: value for key, value in found.items() if key in known})
        except FileNotFoundError:
            raise CannotCheck(f"{directory} holds no run: there is no {RUN}") from None
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise CannotCheck(f"{directory / RUN} cannot be read: {error}") from None


def played(directory: Path, file: RunFile) -> Scenario:
    """The scenario of a run, in the column of the matrix that it was played in. CannotCheck."""
    try:
        return scenario_file.load(directory / SCENARIO_FILE).in_column(file.column)
    except (ScenarioError, OSError) as error:
        raise CannotCheck(f"the scenario of the run cannot be read: {error}") from None


def judge(directory: Path) -> Verdict:
    """From the files alone, so that a run can be judged again. CannotCheck, HistoryDamaged."""
    file = RunFile.read(directory)
    scenario, replicas = played(directory, file), read_replicas(directory / REPLICAS)
    return beyond_rules(directory, file, scenario, replicas, check_run(directory, compared(file, replicas)))


def compared(file: RunFile, replicas: Sequence[PartitionReplicas] | None) -> list[PartitionReplicas] | None:
    """Leaves out copies that are known to be rotten."""
    if replicas is None:
        return None
    rotten = set(file.rotten)
    return [
        replace(each, replicas=tuple(log for log in each.replicas if (log.broker, each.partition) not in rotten))
        for each in replicas
    ]


def beyond_rules(
    directory: Path,
    file: RunFile,
    scenario: Scenario,
    replicas: Sequence[PartitionReplicas] | None,
    verdict: Verdict,
) -> Verdict:
    """`verdict` over the history, with what the scenario expects beside its promise and what shows in the run's other files.
    CannotCheck."""
    verdict = verdict.with_promises(*file.unkept)
    if not verdict.complete:
        left_out = "what the scenario expects beside its promise is not judged: that takes a whole run"
        return replace(verdict, notes=(*verdict.notes, left_out))
    if replicas is None:
        verdict = replace(verdict, complete=False)
    else:
        verdict = verdict.with_promises(_all_compared(scenario.topic, replicas))
    facts = Facts.of(HistoryReader(directory / HISTORY))
    try:
        looks = samples.read_samples(directory / samples.FILE_NAME)
    except ValueError as error:
        raise CannotCheck(f"{directory / samples.FILE_NAME}: {error}") from None
    seen = expect.Seen(facts, looks, [fault.observed for fault in file.faults])
    more = (*expect.judge(scenario.expect, seen), *_controls(scenario, verdict))
    begun = premises(scenario, facts, verdict)
    return replace(
        verdict.with_promises(*begun, *more), notes=(*verdict.notes, *_rotten(file), *_pace(file), *_left_out(file))
    )


def _all_compared(topic: TopicShape, replicas: Sequence[PartitionReplicas]) -> Kept:
    """That which is not there is missed by no comparison."""
    whole = sum(len(each.replicas) == topic.replication_factor for each in replicas)
    limit = f"{topic.partitions} with {topic.replication_factor}"
    return Kept("partitions with all their replicas", whole == len(replicas) == topic.partitions, str(whole), limit)


def promise_of(scenario: Scenario, file: RunFile) -> Promise:
    available: list[Availability] = []
    hit = frozenset(file.affected)
    for each in scenario.promise.unavailable:
        if each.others_s is None:
            available.append(Availability(each.at_most_s, None, each.acks))
            continue
        for limit_s, partitions in (
            (each.at_most_s, hit),
            (each.others_s, frozenset(range(file.partitions)) - hit),
        ):
            if partitions:
                named = tuple(TopicPartition(file.topics[0], p) for p in sorted(partitions))
                available.append(Availability(limit_s, named, each.acks))
    return Promise(
        lost=scenario.promise.lost,
        idempotent=any(producer.acks == "all" for producer in scenario.workload.producers),
        available=tuple(available),
        uncommitted_max=POLL_RECORDS if scenario.workload.consumers.group else None,
    )


def _controls(scenario: Scenario, verdict: Verdict) -> list[Kept]:
    """X7: a run that must show a loss, and does not, shows that the tests are blind."""
    if not scenario.promise.loss_expected:
        return []
    lost = sum(verdict.anomalies[name].count for name in LOSS_ANOMALIES if name in verdict.anomalies)
    return [Kept("acknowledged records are lost, as they must be here", lost > 0, f"{lost} lost", "at least 1")]


def _left_out(file: RunFile) -> tuple[str, ...]:
    if not file.left_out:
        return ()
    drawn = len(file.faults) + len(file.left_out)
    told = [why if times == 1 else f"{why} ({times} times)" for why, times in Counter(file.left_out).most_common()]
    return (f"{len(file.left_out)} of {drawn} drawn faults took no effect: {'; '.join(told)}",)


def _rotten(file: RunFile) -> Iterator[str]:
    for broker, partition in file.rotten:
        copy = f"the copy of {file.topics[0]}-{partition} on broker {broker}"
        yield f"{copy} is rotten, by a bit that a fault has flipped, and was not compared: no scrub has come to it"


def _pace(file: RunFile) -> tuple[str, ...]:
    if file.loop_lag_worst_s <= LOOP_LAG_MAX_S:
        return ()
    return (f"the run's own event loop was {file.loop_lag_worst_s:.1f} s late once: gaps may be its own by so much",)
