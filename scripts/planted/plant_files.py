"""Mistakes of replicas, of the run itself and of its files."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from planted.anomalies import NO_VERDICT, in_files, in_world
from planted.plant_logs import anywhere
from planted.run_directory import RunDirectory
from planted.world import World
from tidelog.chaos.checker.replicas import PartitionReplicas, ReplicaLog, Stretch
from tidelog.chaos.checker.verdict import Kept
from tidelog.chaos.checking import HISTORY, RUN
from tidelog.chaos.history import (
    INFO,
    OK,
    Committed,
    FaultStep,
    Ownership,
    Phase,
    Polled,
    Processed,
    Send,
    Sent,
    Stored,
)
from tidelog.chaos.run_files import SCENARIO_FILE
from tidelog.chaos.samples import FILE_NAME

REPLICA = "a replica differs, or is short"
TORN = "a replica has a batch twice or out of order, or all lack one below the high watermark"
REPLICAS = "replicas.json is missing or empty, or lacks a partition or a replica"
CUT = "the history is empty, cut off, or cut in a line"
NONSENSE = "the history is of phases alone, has no acknowledgement, or cannot be"
NO_LOAD = "the load ends before the fault"
NO_FAULT = "the fault of the scenario is nowhere"
ENDS_TWICE = "the end of the run is in the middle of its history"
WEDGED = "the cluster is not whole again, cannot be read, or lacks a replica"
HARNESS = "the harness fails"
MISSING = "a file of the run is missing, or is garbage"
Stretches = tuple[Stretch, ...]


# -- replicas ----------------------------------------------------------------------------------------------------------


def _drawn(run: RunDirectory) -> int:
    assert run.replicas is not None
    return run.world.rand.choice([n for n, each in enumerate(run.replicas) if len(each.replicas[0].stretches) > 3])


def _change(run: RunDirectory, change: Callable[[Stretches], Stretches], *, all_of_them: bool = False) -> None:
    assert run.replicas is not None
    at = _drawn(run)
    partition = run.replicas[at]
    chosen = run.world.rand.randrange(len(partition.replicas))

    def changed(number: int, log: ReplicaLog) -> ReplicaLog:
        if number != chosen and not all_of_them:
            return log
        stretches = change(log.stretches)
        return replace(log, stretches=stretches, log_end=stretches[-1].end if stretches else 0)

    logs = tuple(changed(number, log) for number, log in enumerate(partition.replicas))
    run.replicas[at] = replace(partition, replicas=logs)


def _middle(run: RunDirectory) -> int:
    """Draws a stretch that each drawn partition has, and that is not the last."""
    return run.world.rand.randrange(1, 3)


@in_files(REPLICA, "it differs", "replicas-differ")
def differs(run: RunDirectory) -> None:
    at = _middle(run)
    _change(run, lambda held: (*held[:at], held[at]._replace(digest="0" * 32), *held[at + 1 :]))


@in_files(REPLICA, "it is short", "replicas-differ", "replica-torn")
def short(run: RunDirectory) -> None:
    number = run.world.rand.randint(1, 3)
    _change(run, lambda held: held[:-number])


@in_files(TORN, "a batch twice", "replica-torn")
def has_a_batch_twice(run: RunDirectory) -> None:
    at = _middle(run)
    _change(run, lambda held: (*held[: at + 1], held[at], *held[at + 1 :]))


@in_files(TORN, "two out of order", "replica-torn")
def has_batches_out_of_order(run: RunDirectory) -> None:
    at = _middle(run)
    _change(run, lambda held: (*held[:at], held[at + 1], held[at], *held[at + 2 :]))


@in_files(TORN, "all lack one in the middle", "replica-torn")
def all_lack_a_batch(run: RunDirectory) -> None:
    at = _middle(run)
    _change(run, lambda held: (*held[:at], *held[at + 1 :]), all_of_them=True)


@in_files(TORN, "all lack the end", "replica-torn")
def all_lack_the_end(run: RunDirectory) -> None:
    _change(run, lambda held: held[:-1], all_of_them=True)


@in_files(REPLICAS, "missing", exit_code=NO_VERDICT)
def no_replicas(run: RunDirectory) -> None:
    run.replicas = None


def _replicas(case: str, change: Callable[[World, list[PartitionReplicas]], None]) -> None:
    @in_files(REPLICAS, case, "partitions with all their replicas", hides=True)
    def changed(run: RunDirectory) -> None:
        assert run.replicas is not None
        change(run.world, run.replicas)


def _lacks_a_replica(world: World, held: list[PartitionReplicas]) -> None:
    at = anywhere(world)
    held[at] = replace(held[at], replicas=held[at].replicas[1:])


_replicas("empty", lambda world, held: held.clear())
_replicas("lacks a partition", lambda world, held: held.__delitem__(anywhere(world)))
_replicas("lacks a replica", _lacks_a_replica)


# -- the history as a file ---------------------------------------------------------------------------------------------


@in_files(CUT, "empty", exit_code=NO_VERDICT)
def empty(run: RunDirectory) -> None:
    run.records = []


@in_files(CUT, "after a line", exit_code=NO_VERDICT)
def cut_off(run: RunDirectory) -> None:
    del run.records[run.world.rand.randrange(1, len(run.records)) :]


@in_files(CUT, "in a line", exit_code=NO_VERDICT)
def cut_in_a_line(run: RunDirectory) -> None:
    part = run.world.rand.random()

    def cut(text: bytes) -> bytes:
        at = int(len(text) * part)
        return text[: at - 1] if text[:at].endswith(b"\n") else text[:at]

    run.text = cut


@in_files(NONSENSE, "phases alone", "every part of the load runs before the first fault", hides=True)
def phases_alone(run: RunDirectory) -> None:
    run.records = [each for each in run.records if isinstance(each, Phase)]


def _in_doubt(record: Any) -> Any:
    return record._replace(outcome=INFO, offset=None, leader_epoch=None, attempts=None)


@in_files(NONSENSE, "nothing is acknowledged", "every part of the load runs before the first fault", hides=True)
def nothing_acknowledged(run: RunDirectory) -> None:
    gone = (Polled, Processed, Committed, Stored, Ownership)
    kept = [each for each in run.records if not isinstance(each, gone)]
    run.records = [_in_doubt(each) if isinstance(each, Sent) else each for each in kept]


@in_files(NONSENSE, "a partition acknowledges nothing", "unavailable", hides=True)
def a_partition_acknowledges_nothing(run: RunDirectory) -> None:
    number = anywhere(run.world)
    ids = {each.id for each in run.records if isinstance(each, Send) and each.partition == number}
    run.records = [_in_doubt(each) if isinstance(each, Sent) and each.id in ids else each for each in run.records]


@in_files(NONSENSE, "time goes back", exit_code=NO_VERDICT)
def time_goes_back(run: RunDirectory) -> None:
    at = run.world.rand.choice([n for n in range(1, len(run.records)) if run.records[n - 1].t < run.records[n].t])
    run.records[at - 1], run.records[at] = run.records[at], run.records[at - 1]


@in_files(NONSENSE, "a send never ends", "every send is answered or given up in time")
def never_ends(run: RunDirectory) -> None:
    crashed = {each.process for each in run.records if type(each).__name__ == "Crash"}
    living = {each.id for each in run.records if isinstance(each, Send) and each.process not in crashed}
    ends = [at for at, each in enumerate(run.records) if isinstance(each, Sent) and each.id in living]
    del run.records[run.world.rand.choice(ends)]


@in_files(ENDS_TWICE, "any", exit_code=NO_VERDICT)
def ends_in_the_middle(run: RunDirectory) -> None:
    acked = [at for at, each in enumerate(run.records) if isinstance(each, Sent) and each.outcome == OK]
    at = run.world.rand.choice(acked)
    run.records.insert(at, Phase(run.records[at].t, "end"))
    del run.records[run.world.rand.randrange(at + 2, len(run.records)) :]


# -- the run -----------------------------------------------------------------------------------------------------------


@in_world(NO_LOAD, "a second before it, or less", "every part of the load goes on after the last fault", hides=True)
def load_ends_early(world: World) -> None:
    world.load_until = world.kills[0].at - world.rand.choice((0.0, 1.0))


@in_files(NO_FAULT, "not a step of it", "the faults of the scenario took effect")
def no_fault(run: RunDirectory) -> None:
    run.records = [each for each in run.records if not isinstance(each, FaultStep)]


@in_files(NO_FAULT, "no effect of it", "the faults of the scenario took effect")
def no_effect(run: RunDirectory) -> None:
    run.records = [each for each in run.records if not (isinstance(each, FaultStep) and each.what == "effect")]


def _stops(run: RunDirectory, phase: str) -> None:
    """The run goes no further than into this phase."""
    at = next(at for at, each in enumerate(run.records) if isinstance(each, Phase) and each.phase == phase)
    del run.records[at + 1 :]


def _wedged(case: str, phase: str, promise: str) -> None:
    @in_files(WEDGED, case, promise, hides=True)
    def wedged(run: RunDirectory) -> None:
        _stops(run, phase)
        run.file.unkept = [Kept(promise, False, "not", "within 60 s")]
        run.file.ended = f"broken: {promise}"


_wedged("not whole", "heal", "every partition is whole again")
_wedged("not readable", "final", "every partition can be read to its end")
_wedged("a replica is gone", "final", "every replica is there")


@in_files(HARNESS, "any", exit_code=NO_VERDICT)
def harness_fails(run: RunDirectory) -> None:
    del run.records[run.world.rand.randrange(len(run.records) // 3, len(run.records) - 1) :]
    run.file.ended = "no verdict: the harness failed"


def _missing(name: str) -> None:
    @in_files(MISSING, f"{name} is not there", exit_code=NO_VERDICT)
    def missing(run: RunDirectory) -> None:
        run.left_out.add(name)


for each in (RUN, SCENARIO_FILE, HISTORY):
    _missing(each)


def _garbage(name: str) -> None:
    @in_files(MISSING, f"{name} is garbage", exit_code=NO_VERDICT)
    def garbage(run: RunDirectory) -> None:
        run.garbage[name] = bytes(run.world.rand.randrange(256) for _ in range(100)) + b"\n{}\n"


for each in (RUN, SCENARIO_FILE, HISTORY, "replicas.json", FILE_NAME):
    _garbage(each)
