"""Directories of chaos runs without a cluster: what a workload, an observer and a checker would have written.

A leader is killed at 8 s and comes back at 14 s; partition 0 has no leader for two seconds.
"""

import json
import shutil
from pathlib import Path
from random import Random

from tidelog.chaos import history as h
from tidelog.chaos import samples as s
from tidelog.chaos import scenario_file
from tidelog.chaos.checker.promise import Availability, Promise
from tidelog.chaos.checker.verdict import Anomaly, Example, Gap, Kept, Verdict
from tidelog.chaos.run_files import PLAYED, SCENARIO_FILE, RunFile

TOPIC = "chaos"
KILLED, ELECTED, BACK, FULL, END = 8.0, 10.0, 14.0, 16.5, 24.0
SOUND = Verdict(
    anomalies={name: Anomaly(0, False) for name in ("lost-write", "duplicate", "unseen", "inconsistent-offsets")},
    gaps=(Gap(TOPIC, 0, "all", KILLED, ELECTED + 0.1, True, ("kill leader of 0",)),),
    promises=(
        Kept("no acknowledged record is lost", True, "0 of 3000", "0"),
        Kept("affected partitions are available again", True, "2.1 s", "at most 8 s"),
    ),
)
BROKEN = Verdict(
    anomalies={
        **SOUND.anomalies,
        "lost-write": Anomaly(
            2,
            False,
            (
                Example(
                    "p1-17 was acknowledged at offset 12 of chaos-0 and is gone: offset 40 was read.",
                    8.1,
                    TOPIC,
                    0,
                    (1, 4),
                ),
                Example("p1-21 was acknowledged at offset 13 of chaos-0 and is gone.", 8.3, TOPIC, 0, (2,)),
            ),
        ),
        "duplicate": Anomaly(3, True, (Example("p2-5 is at offsets 3 and 9 of chaos-1.", 9.0, TOPIC, 1, (5,)),)),
    },
    gaps=SOUND.gaps,
    promises=(
        Kept("no acknowledged record is lost", False, "2 of 3000", "0"),
        Kept("affected partitions are available again", False, "9.4 s", "at most 8 s"),
    ),
    notes=("X2 was not judged: there are no copies of the replicas.",),
)


def history(partitions: int = 3, rate: float = 150.0, seed: int = 1) -> list[h.Record]:
    """In the order of its times, with a phase `end`."""
    rand = Random(seed)
    found: list[h.Record] = [h.Phase(0.0, "load"), h.Phase(20.0, "heal"), h.Phase(21.0, "final"), h.Phase(END, "end")]
    ends = [0] * partitions
    for number in range(int(20.0 * rate)):
        t, partition = number / rate, number % partitions
        acks = "all" if number % 3 else "1"
        value = f"p-{number}"
        found.append(h.Send(t, number, f"producer-{1 + number % 2}", TOPIC, partition, value, acks))
        took = 0.004 + rand.expovariate(150.0)
        if partition == 0 and KILLED <= t < ELECTED:
            took = ELECTED - t + rand.random() * 0.1
            if number % 11 == 0:
                found.append(h.Sent(t + 4.0, number, h.INFO, error="timeout"))
                continue
            if number % 7 == 0:
                found.append(h.Sent(t + 0.1, number, h.FAIL, error="NOT_ENOUGH_REPLICAS"))
                continue
        epoch = 2 if _hit(partition) and t + took >= ELECTED else 1
        found.append(h.Sent(t + took, number, h.OK, ends[partition], epoch, 3))
        found.append(
            h.Polled(t + took + 0.05, "consumer-1", number, t, (h.Read(TOPIC, partition, ((ends[partition], value),)),))
        )
        ends[partition] += 1
    for what, t in (("begin", KILLED - 0.02), ("effect", KILLED), ("heal", BACK), ("healed", BACK + 0.8)):
        found.append(h.FaultStep(t, "kill", what, ("broker-1",), "kill leader of 0", 1))
    return sorted(found, key=lambda record: record.t)


def _hit(partition: int) -> bool:
    return partition % 3 == 1 or partition == 0


def _partition_states(t: float, partitions: int) -> list[s.PartitionState]:
    """Broker 1 leads partition 0 and every third one until it dies; broker 2 leads them from then on."""
    states = []
    for p in range(partitions):
        hit = _hit(p)
        leader, epoch, isr = (1 if hit else p % 3), 1, [0, 1, 2]
        if KILLED <= t < ELECTED and hit:
            leader, isr = -1, [0, 2]
        elif t >= ELECTED:
            leader, epoch = (2, 2) if hit else (leader, epoch)
            isr = [0, 2] if t < FULL else isr
        version = int(t >= ELECTED) + int(t >= FULL)
        states.append(
            s.PartitionState(
                topic=TOPIC,
                partition=p,
                leader=leader,
                leader_epoch=epoch,
                partition_epoch=version,
                replicas=[0, 1, 2],
                isr=isr,
            )
        )
    return states


def samples(partitions: int = 3, rate: float = 150.0) -> list[s.Sample]:
    looks: list[s.Sample] = []
    for tick in range(int(END / 0.4)):
        t = tick * 0.4
        dead = KILLED <= t < BACK
        names = ("zookeeper-1", "controller-1", "controller-2", "broker-0", "broker-1", "broker-2")
        looks.append(
            s.ProcessStates(
                t=t, took=0.01, states={n: "stopped" if dead and n == "broker-1" else "running" for n in names}
            )
        )
        looks += [
            s.ControllerLook(t=t + 0.05, took=0.01, process=f"controller-{number}", active=number == 1, epoch=1)
            for number in (1, 2)
        ]
        looks.append(s.ZooKeeperLook(t=t + 0.06, took=0.01, process="zookeeper-1", role="standalone"))
        states = _partition_states(t, partitions)
        looks.append(s.Partitions(t=t + 0.1, took=0.01, partitions=tuple(states)))
        for broker in range(3):
            name = f"broker-{broker}"
            if dead and broker == 1:
                looks.append(s.Silent(t=t + 0.2, took=0.01, source=name, why="Connection refused"))
                continue
            replicas = []
            for state in states:
                stalled = state.leader < 0
                written = int(min(t, 20.0, KILLED if stalled else 99.0) * rate / partitions)
                behind = 40 if broker == 1 and BACK <= t < FULL else 0
                replicas.append(
                    s.Replica(
                        topic=TOPIC,
                        partition=state.partition,
                        leader_epoch=state.leader_epoch,
                        log_start=0,
                        high_watermark=max(0, written - 3),
                        log_end=max(0, written - behind),
                        isr_size=len(state.isr) if state.leader == broker else None,
                    )
                )
            looks.append(s.BrokerLook(t=t + 0.2, took=0.01, process=name, replicas=tuple(replicas)))
        looks.append(
            s.GroupLook(
                t=t + 0.3,
                took=0.01,
                group="chaos-group",
                state="PreparingRebalance" if ELECTED < t < ELECTED + 1 else "Stable",
                coordinator=0,
                coordinator_epoch=1,
                generation=1 + int(t > ELECTED + 1),
                members=2,
                committed=tuple(
                    s.Committed(topic=TOPIC, partition=p, offset=int(min(max(0.0, t - 1.0), 20.0) * rate / partitions))
                    for p in range(partitions)
                ),
            )
        )
    return looks


def write_run(
    directory: Path, verdict: Verdict | None = SOUND, *, partitions: int = 3, rate: float = 150.0, until: float = END
) -> Path:
    """`until`: the run was cut off there."""
    directory.mkdir(parents=True, exist_ok=True)
    run = RunFile("row-01-kill-leader", 1, "The leader is killed", 7, "local", 20.0, [TOPIC], partitions, "chaos-group")
    run.started_wall_ms, run.version, run.ended = 1_790_000_000_000, "0.1.0", PLAYED
    run.promise = Promise(available=(Availability(8.0, acks="all"),)).to_json()
    run.write(directory)
    shutil.copy(scenario_file.find("row-01"), directory / SCENARIO_FILE)
    whole = until >= END
    lines = [h.encode(record) for record in history(partitions, rate) if record.t <= until]
    (directory / "history.jsonl").write_text("\n".join(lines) + "\n" + ("" if whole else '{"t":9'))
    looks = [s.to_line(look) for look in samples(partitions, rate) if look.t <= until]
    (directory / s.FILE_NAME).write_text("\n".join(looks) + "\n" + ("" if whole else '{"t":9'))
    if verdict is not None:
        (directory / "verdict.json").write_text(json.dumps(verdict.to_json()))
    return directory
