"""A run with anomalies in it, or none, from a seed to its directory; and what a judge says of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from planted.anomalies import NO_VERDICT, SOUND, Anomaly, NeverHappened
from planted.run_directory import RunDirectory
from planted.world import World
from tidelog.chaos.checker.verdict import Verdict, worst
from tidelog.chaos.checking import CannotCheck
from tidelog.chaos.history import HistoryDamaged
from tidelog.chaos.run_files import judge

Found = Verdict | CannotCheck | HistoryDamaged


@dataclass(frozen=True, slots=True)
class Made:
    directory: Path
    anomalies: Sequence[Anomaly]
    seed: int


def make(anomalies: Sequence[Anomaly], seed: int, directory: Path) -> Made:
    """Plays `seed`, or one of those behind it by millions: the first whose run gives occasion for all of them."""
    while True:
        try:
            return Made(_played(anomalies, seed).write(directory), anomalies, seed)
        except NeverHappened:
            seed += 1_000_000


def _played(anomalies: Sequence[Anomaly], seed: int) -> RunDirectory:
    world = World(seed)
    if anomalies:  # what a leader alone has acknowledged may be lost: a planted loss would be an allowed one
        world.lonely = False
    for each in anomalies:
        if each.plant is not None:
            each.plant(world)
    world.play()
    if world.unplanted:
        raise NeverHappened
    run = RunDirectory.of(world)
    for each in anomalies:
        if each.spoil is not None:
            each.spoil(run)
    return run


def judged_here(directory: Path) -> Found:
    try:
        return judge(directory)
    except (CannotCheck, HistoryDamaged) as error:
        return error


def missed(anomalies: Sequence[Anomaly], found: Found) -> str | None:
    """Says in words what a judge did not notice. None: it said what it had to say."""
    code = found.exit_code if isinstance(found, Verdict) else NO_VERDICT
    due = worst(each.exit_code for each in anomalies) if anomalies else SOUND
    told = named(found)
    if code != due:
        return f"exit code {code}, due is {due}: {sorted(told)}"
    unnamed = [each.name for each in anomalies if each.named and not told & set(each.named)]
    return f"not named: {', '.join(unnamed)}; named: {sorted(told)}" if unnamed else None


def named(found: Found) -> frozenset[str]:
    """Rules and promises that it calls broken; without a verdict, why there is none."""
    if not isinstance(found, Verdict):
        return frozenset({str(found)})
    broken = {each.text for each in found.promises if not each.kept}
    return frozenset(broken | {name for name, anomaly in found.anomalies.items() if anomaly.bad})
