"""The table of docs/verification/histories.md: each row of anomalies, how many of its runs a judge caught, and what it named."""

import json
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

from planted.anomalies import BROKEN, SOUND, Anomaly
from planted.made import Found, judged_here, make, missed, named
from planted.rows import by_row
from tidelog.chaos.checking import CannotCheck
from tidelog.chaos.history import HistoryDamaged

VARIANTS: Final = 20
SOUND_RUNS: Final = 200
DOUBLES: Final = 50
SPARK_VARIANTS: Final = 2
SPARK_SOUND: Final = 20
NOTHING: Final = "nothing (sound)"
TWO: Final = "two anomalies of different rows at once"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A run to be made."""

    row: str
    anomalies: Sequence[str]
    """Their places in the catalogue: a row and a name."""
    seed: int
    on_spark: bool


def every_anomaly() -> Mapping[str, Anomaly]:
    return {f"{each.row}: {each.name}": each for cases in by_row().values() for each in cases}


def wanted(variants: int = VARIANTS, sound: int = SOUND_RUNS, doubles: int = DOUBLES) -> Iterator[Wanted]:
    """Cases of a row take turns."""
    for number, (row, cases) in enumerate(by_row().items()):
        for variant in range(variants):
            case = cases[variant % len(cases)]
            yield Wanted(row, [f"{row}: {case.name}"], 1_000 * number + variant, variant < SPARK_VARIANTS)
    for variant in range(sound):
        yield Wanted(NOTHING, [], 900_000 + variant, variant < SPARK_SOUND)
    rand = Random(20_261_125)
    for variant in range(doubles):
        yield Wanted(TWO, _two(rand), 950_000 + variant, on_spark=True)


def _two(rand: Random) -> list[str]:
    """Draws two of different rows; neither takes away what shows the other."""
    rows = [
        names
        for row, cases in by_row().items()
        if (names := [f"{row}: {each.name}" for each in cases if each.exit_code == BROKEN and not each.hides])
    ]
    return [rand.choice(names) for names in rand.sample(rows, 2)]


@dataclass(frozen=True, slots=True)
class Judgement:
    wanted: Wanted
    directory: Path
    seed: int
    """The run's, in which its anomalies found an occasion."""
    named: frozenset[str]
    missed: str | None


def judged(runs: Sequence[Wanted], folder: Path) -> Iterator[Judgement]:
    """On this machine; directories of runs that Spark is to judge, too, stay where they are."""
    with ProcessPoolExecutor() as pool:
        yield from pool.map(partial(_judged, folder=folder), runs)


def _anomalies(each: Wanted) -> list[Anomaly]:
    known = every_anomaly()
    return [known[name] for name in each.anomalies]


def _judged(each: Wanted, folder: Path) -> Judgement:
    made = make(_anomalies(each), each.seed, folder / str(each.seed))
    found = judged_here(made.directory)
    if not each.on_spark:
        shutil.rmtree(made.directory)
    return Judgement(each, made.directory, made.seed, named(found), missed(made.anomalies, found))


def judged_on_spark(runs: Sequence[Judgement]) -> Iterator[Judgement]:
    """All of them in one session."""
    from tidelog.pipeline.jobs.audit.runs import judge_runs, open_run
    from tidelog.pipeline.session import spark_session

    opened, refused = {}, {}
    for run in runs:
        try:
            opened[run.wanted.seed] = open_run(run.directory, lambda what, rows: None)
        except (CannotCheck, HistoryDamaged) as error:
            refused[run.wanted.seed] = error
    settings = {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "4g"}
    spark = spark_session("tidelog-planted", "local[2]", settings)
    try:
        verdicts = judge_runs(spark, list(opened.values()), lambda what, rows: None)
    finally:
        spark.stop()
    found: dict[int, Found] = {
        **refused,
        **{seed: each.verdict for seed, each in zip(opened, verdicts, strict=True)},
    }
    for run in runs:
        said = found[run.wanted.seed]
        yield replace(run, named=named(said), missed=missed(_anomalies(run.wanted), said))


def rows_of(here: Sequence[Judgement], spark: Sequence[Judgement]) -> Iterator[str]:
    """The table's, in Markdown."""
    yield "| anomaly | cases | caught here | on Spark | named |"
    yield "|---|---|---|---|---|"
    cases = by_row()
    for row in dict.fromkeys(each.wanted.row for each in here):
        mine = [each for each in here if each.wanted.row == row]
        theirs = [each for each in spark if each.wanted.row == row]
        told = "; ".join(each.name for each in cases.get(row, ()))
        rules = Counter(name for each in mine for name in each.named)
        due = {name for each in cases.get(row, ()) for name in each.named}
        often = ", ".join(f"`{name}` {count}" for name, count in sorted(rules.items(), key=_often) if name in due)
        yield f"| {row} | {told or '-'} | {_caught(mine)} | {_caught(theirs)} | {often or _why(row)} |"


def _often(rule: tuple[str, int]) -> tuple[int, str]:
    return -rule[1], rule[0]


def _caught(runs: Sequence[Judgement]) -> str:
    return f"{sum(each.missed is None for each in runs)} of {len(runs)}"


def _why(row: str) -> str:
    """Nothing is named there."""
    if row in (NOTHING, TWO):
        return "nothing" if row == NOTHING else "both, by the rules of their rows"
    return "nothing: it is allowed" if {each.exit_code for each in by_row()[row]} == {SOUND} else "no verdict"


def told(each: Judgement) -> str:
    """One line about a run that was judged wrongly."""
    return json.dumps({"row": each.wanted.row, "seed": each.seed, "missed": each.missed}, ensure_ascii=False)
