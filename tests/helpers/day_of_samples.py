"""A day of a cluster as samples in a Prometheus, without waiting for it: what lived when is known to the second."""

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dashboards import rules
from dashboards.zoom import SCRAPE_S
from helpers.prometheus import Prometheus, running
from tidelog.cluster.free_ports import free_ports

HOUR: Final = 3_600
MINUTE: Final = 60
PARTITIONS: Final = range(3)
BROKERS: Final = range(1, 4)
LOOKBACK_S: Final = 5
"""A sample counts so long: written samples have no marks of their end, as scraped ones have."""
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Day:
    """Seconds before its end, as (from, to) with from > to: when the cluster ran, and which faults there were."""

    end: int
    runs: Sequence[Span] = ((24 * HOUR, 23 * HOUR), (200 * MINUTE, 120 * MINUTE), (50 * MINUTE, 0))
    no_brokers: Sequence[Span] = ((40 * MINUTE, 36 * MINUTE),)
    killed: Sequence[Span] = ((150 * MINUTE, 148 * MINUTE), (200, 140))
    """Broker 1, which leads partition 0; the ISRs are without it until it is back."""

    def cluster_lives(self, at: int) -> bool:
        return self._within(at, self.runs)

    def broker_lives(self, at: int, broker: int = 2) -> bool:
        killed = broker == 1 and self._within(at, self.killed)
        return self.cluster_lives(at) and not killed and not self._within(at, self.no_brokers)

    def in_sync(self, at: int) -> list[int]:
        return [each for each in BROKERS if self.broker_lives(at, each)]

    def leader(self, at: int, partition: int) -> int | None:
        """The first of its replicas that lives."""
        replicas = [1 + (partition + offset) % 3 for offset in range(3)]
        return next((each for each in replicas if self.broker_lives(at, each)), None)

    def _within(self, at: int, spans: Sequence[Span]) -> bool:
        return any(self.end - begin <= at < self.end - end for begin, end in spans)


Sample = tuple[str, dict[str, object], float]
"""Name, labels, value."""


def samples(day: Day, at: int) -> Iterator[Sample]:
    """Samples of what lives at a time, of the families that the first screen of the board of faults asks for."""
    in_sync = day.in_sync(at)
    for broker in BROKERS:
        process: dict[str, object] = {"job": "broker", "instance": f"broker-{broker}:9101"}
        yield "up", process, broker in in_sync
        if broker in in_sync:
            for partition in PARTITIONS:
                yield from of_replica(day, at, broker, {**process, "topic": "events", "partition": partition})
    if in_sync:
        yield rules.GROUP_LAG.name, {"group": "agents", "topic": "events"}, 20
    if day.cluster_lives(at):
        controller: dict[str, object] = {"job": "controller", "instance": "controller-1:9101"}
        yield "tidelog_controller_active", controller, 1
        yield "tidelog_controller_brokers", {**controller, "state": "alive"}, len(in_sync)
        yield "tidelog_controller_offline_partitions", controller, 0 if in_sync else len(PARTITIONS)
        yield "tidelog_controller_under_replicated_partitions", controller, len(PARTITIONS) * (len(in_sync) < 3)
        shrinks = len(PARTITIONS) * sum(at >= day.end - begin for begin, _ in day.killed)
        yield "tidelog_controller_isr_shrinks_total", {**controller, "cause": "broker gone"}, shrinks
        for partition in PARTITIONS:
            traffic = {"job": "traffic", "instance": "traffic:9101", "partition": partition}
            yield "tidelog_e2e_longest_ack_gap_seconds", traffic, 0.05


def of_replica(day: Day, at: int, broker: int, where: dict[str, object]) -> Iterator[Sample]:
    yield "tidelog_partition_leader_epoch", where, 1
    yield "tidelog_partition_high_watermark", where, 20 * (at - day.end + 24 * HOUR)
    partition = int(str(where["partition"]))
    if day.leader(at, partition) == broker:
        yield "tidelog_partition_leader", where, broker
        moved = day.leader(at - SCRAPE_S, partition) != broker
        yield "tidelog_partition_high_watermark_stall_seconds", where, 1.2 if moved else 0.02
        for member in day.in_sync(at):
            yield "tidelog_partition_isr_member", {**where, "broker": member}, member


def open_metrics(day: Day) -> Iterator[str]:
    for at in range(day.end - 24 * HOUR, day.end + 1, SCRAPE_S):
        for name, labels, value in samples(day, at):
            inside = ",".join(f'{key}="{text}"' for key, text in labels.items())
            yield f"{name}{{{inside}}} {value:g} {at}\n"
    yield "# EOF\n"


@contextmanager
def prometheus_with(day: Day, directory: Path) -> Iterator[Prometheus]:
    """Needs the programs of Debian's package: the container of a test has no way to write samples."""
    text, data = directory / "samples.txt", directory / "tsdb"
    with text.open("w") as file:
        file.writelines(open_metrics(day))
    blocks = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(text), str(data)]
    subprocess.run(blocks, check=True, stdout=subprocess.DEVNULL)
    (directory / "prometheus.yml").write_text("{}")
    (port,) = free_ports(1)
    program = shutil.which("prometheus")
    assert program is not None
    command = [
        program,
        f"--web.listen-address=127.0.0.1:{port}",
        f"--config.file={directory / 'prometheus.yml'}",
        f"--storage.tsdb.path={data}",
        f"--query.lookback-delta={LOOKBACK_S}s",
        "--log.level=warn",
    ]
    with running(command, port) as server:
        yield server
