"""The directory that a run of a `World` leaves, as the harness writes it, and what may be wrong with its files."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Final

from planted.world import BROKERS, GROUP, TOPIC, World
from tidelog.chaos import scenario_file
from tidelog.chaos.checker.replicas import PartitionReplicas, ReplicaLog, Stretch
from tidelog.chaos.checking import HISTORY, REPLICAS
from tidelog.chaos.history import Record, encode
from tidelog.chaos.run_files import PLAYED, SCENARIO_FILE, RunFile, promise_of

SEGMENTED_BY: Final = 7
"""Records of a stretch, at most: batches are cut anew, since what is compared are digests."""
_SCENARIO: Final = """\
name: planted-{seed}
title: a run that was made up
about: leaders die under load
runs_in: [local]
topic: {{name: {topic}, partitions: {partitions}, replication_factor: {brokers}, min_isr: {min_isr}}}
workload:
  rate: 50
  producers: [{{acks: all, count: {count}}}, {{acks: 1}}]
  consumers: {{assigned: {assigned}, group: {members}}}
duration: {duration:.0f}s
faults:
{faults}
promise:
  lost: one-copy
  unavailable: {{at_most: 8s}}
"""
_FAULT: Final = "  - {{at: {at:.2f}s, fault: kill, target: leader of {partition}, for: {seconds:.2f}s}}"


@dataclass(slots=True)
class RunDirectory:
    """All that is to be written of a run."""

    world: World
    records: list[Record]
    replicas: list[PartitionReplicas] | None
    file: RunFile
    scenario: str
    text: Callable[[bytes], bytes] = lambda text: text
    """Last of all: what is made of the text of the history."""
    left_out: set[str] = field(default_factory=set)
    """Names of files that are not there."""
    garbage: dict[str, bytes] = field(default_factory=dict)
    """Other contents of files, by their names."""

    @classmethod
    def of(cls, world: World) -> "RunDirectory":
        scenario, partitions = _scenario(world), len(world.partitions)
        file = RunFile(
            f"planted-{world.seed}",
            None,
            "a run that was made up",
            world.seed,
            "local",
            world.load_s,
            [TOPIC],
            partitions,
        )
        file.group, file.ended = GROUP, PLAYED
        return cls(world, world.records, replicas(world), file, scenario)

    def write(self, directory: Path) -> Path:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / SCENARIO_FILE).write_text(self.scenario)
        self.file.promise = promise_of(scenario_file.load(directory / SCENARIO_FILE), self.file).to_json()
        self.file.write(directory)
        text = "".join(f"{encode(record)}\n" for record in self.records)
        (directory / HISTORY).write_bytes(self.text(text.encode()))
        if self.replicas is not None:
            (directory / REPLICAS).write_text(json.dumps([each.to_json() for each in self.replicas]))
        for name, content in self.garbage.items():
            (directory / name).write_bytes(content)
        for name in self.left_out:
            (directory / name).unlink()
        return directory


def _scenario(world: World) -> str:
    faults = "\n".join(_FAULT.format(at=k.at, partition=k.partition, seconds=k.seconds) for k in world.kills)
    return _SCENARIO.format(
        seed=world.seed,
        topic=TOPIC,
        partitions=len(world.partitions),
        brokers=BROKERS,
        min_isr=1 if world.lonely else 2,
        count=len(world.producers) - 1,
        assigned=len(world.readers),
        members=len(world.group.members),
        duration=world.load_s,
        faults=faults,
    )


def replicas(world: World) -> list[PartitionReplicas]:
    """All alike."""
    found = []
    for partition in world.partitions:
        held = tuple(_stretches(partition.log))
        logs = tuple(ReplicaLog(broker, 0, len(partition.log), held) for broker in range(BROKERS))
        found.append(PartitionReplicas(TOPIC, partition.number, partition.high_watermark, logs))
    return found


def _stretches(log: list[str | None]) -> list[Stretch]:
    """A stretch has no hole in it: what is not there is between two of them."""
    found, at = [], 0
    while at < len(log):
        end = at
        while end < len(log) and log[end] is not None and end - at < SEGMENTED_BY:
            end += 1
        if end > at:
            names = "\n".join(map(str, log[at:end]))
            found.append(Stretch(at, end, blake2b(names.encode(), digest_size=16).hexdigest()))
        at = max(end, at + 1)
    return found
