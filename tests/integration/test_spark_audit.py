"""`audit`: the checker's rules as DataFrame code, against the plain checker on the same histories and on directories of runs."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from helpers.audited import Answer, audit_answers, differences, plain_answers
from helpers.batches import batch
from helpers.histories import Story, found, rows
from helpers.random_histories import Drawn, drawn_promise
from helpers.recorded_histories import Recorded, load
from helpers.scripts import ROOT
from mutants.checker import MUTANTS
from mutants.patching import MUTANT, Mutant
from tidelog.chaos import scenario_file
from tidelog.chaos.checker.names import RULES
from tidelog.chaos.checker.replicas import PartitionReplicas
from tidelog.chaos.checker.verdict import Verdict
from tidelog.chaos.checking import CannotCheck
from tidelog.chaos.history import HistoryDamaged, HistoryWriter
from tidelog.chaos.replicas import replica_log
from tidelog.chaos.run_files import RunFile, judge
from tidelog.storage.segment import segment_name
from tidelog.wire.batch import stamp, validate_produce

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(600)]

OWN_TESTS = ("availability", "contents", "cycles", "groups", "replicas", "sessions", "verdict", "watermarks")
DRAWN = 120
STEPS_MAX = 70


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    from tidelog.pipeline.session import spark_session

    # There are many queries and next to no rows: what Spark does to be fast with many rows is most of the time.
    plain = {
        **{"spark.sql.shuffle.partitions": "1", "spark.sql.adaptive.enabled": "false"},
        **{"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"},
    }
    session = spark_session("tidelog-audit-tests", "local[2]", plain)
    yield session
    session.stop()


@pytest.fixture(scope="module")
def histories(tmp_path_factory: pytest.TempPathFactory) -> list[Recorded]:
    """Those of the plain checker's own tests, each rule broken and kept; and drawn ones."""
    path = tmp_path_factory.mktemp("recorded") / "histories"
    env = {**os.environ, "RECORD_TO": str(path), "PYTHONPATH": f"{ROOT / 'services'}:{ROOT / 'tests'}"}
    own = [
        str(ROOT / "tests/unit/chaos/checker"),
        "-k",
        "not peeling and not a_set_of_offsets",
        "-p",
        "no:cacheprovider",
    ]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "helpers.recorded_histories", *own]
    subprocess.run(command, env=env, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return [*load(path), *map(drawn, range(DRAWN))]


def drawn(seed: int) -> Recorded:
    made = Drawn(seed)
    records = made.history(made.rand.randrange(5, STEPS_MAX))
    return Recorded(f"drawn with seed {seed}", tuple(records), drawn_promise(made.rand), None)


@pytest.fixture(scope="module")
def answers(
    spark: Any, histories: list[Recorded], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[Answer, Answer]]:
    """By history, of the plain checker and of the audit: one set of queries judges all of them."""
    audited = audit_answers(spark, histories, tmp_path_factory.mktemp("audited"))
    pairs = zip(plain_answers(histories), audited, strict=True)
    return {history.name: pair for history, pair in zip(histories, pairs, strict=True)}


@pytest.mark.parametrize("origin", [*(f"test_{name}.py" for name in OWN_TESTS if name != "verdict"), "drawn"])
def test_x1_to_x7_the_audit_answers_as_the_plain_checker_history_by_history(
    answers: dict[str, tuple[Answer, Answer]], origin: str
) -> None:
    mine = {name: pair for name, pair in answers.items() if name.startswith(origin)}
    assert len(mine) >= 5
    wrong = {name: told for name, pair in mine.items() if (told := differences(*pair))}
    assert not wrong, "\n".join(f"{name}: {told}" for name, told in wrong.items())


def test_every_rule_is_broken_in_some_history_and_kept_in_another(answers: dict[str, tuple[Answer, Answer]]) -> None:
    audited = [answer["anomalies"] for _, answer in answers.values() if not isinstance(answer, str)]
    counts = {rule: {each[rule]["count"] > 0 for each in audited if rule in each} for rule in RULES}
    assert [rule for rule, seen in counts.items() if seen != {True, False}] == []
    assert sum(isinstance(answer, str) for _, answer in answers.values()) >= 3, "impossible histories"


@pytest.mark.parametrize(
    "mutant",
    [
        mutant
        for mutant in MUTANTS
        if mutant.name in ("CHECK-X3-leader", "CHECK-lost-bound", "CHECK-X2", "CHECK-int-poll")
    ],
    ids=lambda mutant: mutant.name,
)
def test_x7_the_comparison_notices_a_rule_that_is_weakened_in_one_of_the_two(
    mutant: Mutant, histories: list[Recorded], answers: dict[str, tuple[Answer, Answer]], tmp_path: Path
) -> None:
    weakened = answers_with(mutant, histories, tmp_path)
    audited = [audit for _, audit in answers.values()]
    assert any(differences(one, other) for one, other in zip(weakened, audited, strict=True))


def answers_with(mutant: Mutant, histories: Sequence[Recorded], folder: Path) -> list[Answer]:
    """Answers of the plain checker, in a process that has the mutant in it."""
    import pickle

    (folder / "histories").write_bytes(pickle.dumps(list(histories)))
    program = (
        "from mutants.patching import plant_from_environment; plant_from_environment(); "
        "import json, sys; from pathlib import Path; from helpers.recorded_histories import load; "
        "from helpers.audited import plain_answers; print(json.dumps(plain_answers(load(Path(sys.argv[1])))))"
    )
    path = os.pathsep.join(str(ROOT / each) for each in ("services", "scripts", "tests"))
    done = subprocess.run(
        [sys.executable, "-c", program, str(folder / "histories")],
        env={**os.environ, "PYTHONPATH": path, MUTANT: mutant.reference},
        check=True,
        capture_output=True,
    )
    found: list[Answer] = json.loads(done.stdout)
    return found


# --- directories of runs ----------------------------------------------------------------------------------------------


def stored(value: bytes, offset: int) -> bytes:
    return b"".join(stamp(validate_produce(batch(value), batch_bytes_max=1 << 20), offset, 0))


SEGMENTS = {segment_name(0): stored(b"a", 0), segment_name(1): stored(b"b", 1)}


def run_directory(directory: Path, story: Story, *, cut: int = 0) -> Path:
    """As `tidelog chaos run` leaves it, but for the Parquet file, which a machine without the extra `spark` does not write."""
    directory.mkdir()
    with HistoryWriter(directory / "history.jsonl") as writer:
        for record in story.records:
            writer.append(record)
    if cut:
        data = (directory / "history.jsonl").read_bytes()
        (directory / "history.jsonl").write_bytes(data[:-cut])
    scenario = scenario_file.find("row-01-kill-leader")
    (directory / "scenario.yaml").write_text(scenario.read_text())
    logs = tuple(replica_log(broker, SEGMENTS) for broker in (0, 1))
    (directory / "replicas.json").write_text(json.dumps([PartitionReplicas("chaos", 0, 2, logs).to_json()]))
    (directory / "samples.jsonl").write_text("")
    RunFile("row-01-kill-leader", 1, "t", 1, "local", 5.0, ["chaos"], 1).write(directory)
    return directory


def whole() -> Story:
    story = Story().phase("load").log("a", "b").fault("begin").fault("effect").owns(0, group="g", term=(1, 1))
    story.sent("c", None, "fail").processed(0, 1).fault("heal").fault("healed").crash("d")
    return story.poll(*rows("a", "b")).end(rows("a", "b"))


def judged(spark: Any, *directories: Path) -> list[Verdict | HistoryDamaged]:
    from tidelog.pipeline.jobs.audit.runs import judge_runs, open_run

    opened = [open_run(directory, lambda what, rows: None) for directory in directories]
    return [each.verdict for each in judge_runs(spark, opened, lambda what, rows: None)]


def kept(directory: Path, *replicas: dict[str, bytes]) -> Path:
    """A run that was told to keep its cluster."""
    run_directory(directory, whole())
    for broker, segments in enumerate(replicas):
        folder = directory / "cluster" / f"broker-{broker}" / "data" / "chaos-0"
        folder.mkdir(parents=True)
        for file, data in segments.items():
            (folder / file).write_bytes(data)
    return directory


@pytest.fixture(scope="module")
def runs(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Verdict | HistoryDamaged]]:
    """By name the directory of a run and what the audit says of it; all are judged at once."""
    folder = tmp_path_factory.mktemp("runs")
    one_file = {segment_name(0): b"".join(SEGMENTS.values()), "00000000000000000000.index": b"x"}
    altered = {**SEGMENTS, segment_name(1): SEGMENTS[segment_name(1)][:-1] + b"?"}
    directories = [
        run_directory(folder / "sound", whole()),
        run_directory(folder / "broken", Story().log("a", "b").poll((1, "b")).end([(1, "b")])),
        run_directory(folder / "cut", Story().log("a", "b").poll((0, "a")), cut=7),
        run_directory(folder / "impossible", Story().sent("a", 0).sent("a", 1)),
        kept(folder / "equal", SEGMENTS, one_file),
        kept(folder / "differ", SEGMENTS, altered),
    ]
    found = judged(spark, *directories)
    return {directory.name: (directory, each) for directory, each in zip(directories, found, strict=True)}


@pytest.mark.parametrize("name, code", [("sound", 1), ("broken", 1), ("cut", 3), ("equal", 1)])
def test_a_directory_is_judged_as_tidelog_chaos_check_judges_it(
    runs: dict[str, tuple[Path, Verdict | HistoryDamaged]], name: str, code: int
) -> None:
    directory, verdict = runs[name]
    assert verdict == judge(directory)
    assert isinstance(verdict, Verdict) and verdict.exit_code == code
    assert verdict.sound is (name != "broken"), (
        "what the row promises of a cluster that was not there is broken everywhere"
    )


def test_an_impossible_history_has_no_verdict_and_its_line_is_named(
    runs: dict[str, tuple[Path, Verdict | HistoryDamaged]],
) -> None:
    directory, damaged = runs["impossible"]
    with pytest.raises(HistoryDamaged) as plain:
        judge(directory)
    assert isinstance(damaged, HistoryDamaged) and str(damaged) == str(plain.value)


def test_x2_where_a_run_kept_its_cluster_its_segments_are_compared_themselves(
    runs: dict[str, tuple[Path, Verdict | HistoryDamaged]],
) -> None:
    (_, equal), (_, differ) = runs["equal"], runs["differ"]
    assert isinstance(equal, Verdict) and isinstance(differ, Verdict)
    assert (found(equal), found(differ)) == ({}, {"replicas-differ": 1})
    assert "from offset 1 on replicas differ: broker 0 has" in differ.anomalies["replicas-differ"].examples[0].text


@pytest.mark.parametrize(
    "file, text, why",
    [
        ("run.json", None, "holds no run: there is no run.json"),
        ("run.json", "{", "run.json cannot be read"),
        ("history.jsonl", None, "has no history.jsonl: is it the directory of a run?"),
        ("history.jsonl", "?\n", "history.jsonl, line 1: not JSON"),
        ("replicas.json", "{}[", "replicas.json: not JSON"),
        ("replicas.json", '[{"topic": "t"}]', "replicas.json: it is no list of what replicas hold"),
    ],
)
def test_a_directory_that_makes_no_sense_is_refused_by_name(
    spark: Any, tmp_path: Path, file: str, text: str | None, why: str
) -> None:
    directory = run_directory(tmp_path / "run", whole())
    (directory / file).unlink() if text is None else (directory / file).write_text(text)
    with pytest.raises((CannotCheck, HistoryDamaged)) as refused:
        judged(spark, directory)
    assert why in str(refused.value) and str(directory) in str(refused.value)
    assert not (directory / "history.parquet").exists() or file == "replicas.json"
