"""What queries bring of a run, to its verdict: the pure part of the audit."""

import pytest

from tidelog.chaos.checker.names import RULES
from tidelog.chaos.checker.promise import Availability, Promise
from tidelog.chaos.checker.verdict import Example, Gap
from tidelog.pipeline.jobs.audit.told import told_cycle
from tidelog.pipeline.jobs.audit.verdicts import Found, Sums, in_force, longest_gap, verdict

WHOLE = Sums(records=9, ended_at=1.5, last_is_end=True, ended=True, final_read=True, has_values=True, final_readers=2)


def test_a_run_of_which_nothing_is_told_is_sound_and_every_rule_that_could_be_was_judged() -> None:
    found = verdict(Found(WHOLE), Promise(), replicas_read=True)
    assert found.sound and found.kept and found.exit_code == 0 and found.notes == ()
    of_groups = {rule for rule in RULES if rule.startswith("group-")}
    assert set(found.anomalies) == RULES.keys() - of_groups - {"unavailable"}
    assert list(found.anomalies) == [rule for rule in RULES if rule in found.anomalies], "in the order of a report"


@pytest.mark.parametrize(
    "sums, absent, note",
    [
        (
            Sums(records=3, ended_at=0.25),
            {"unseen", "lost-acked"},
            "does not reach to the end of the run, but to 0.250 s",
        ),
        (Sums(ended=True, has_values=True), {"lost-acked", "final-differs"}, "there was no final read"),
        (Sums(ended=True, final_read=True, final_readers=1), set(), "there is 1"),
    ],
)
def test_what_was_not_judged_is_missing_and_a_note_says_why(sums: Sums, absent: set[str], note: str) -> None:
    found = verdict(Found(sums), Promise(), replicas_read=True)
    assert not absent & found.anomalies.keys()
    assert any(note in each for each in found.notes)
    assert found.complete is sums.ended


def test_a_history_that_was_cut_off_is_told_by_its_file() -> None:
    notes = verdict(Found(Sums(records=5, ended_at=0.05)), Promise(), replicas_read=True, history="h.jsonl").notes
    assert notes[0] == "h.jsonl was cut off after line 5, at 0.050 s"


def test_replicas_that_nobody_read_are_not_judged() -> None:
    found = verdict(Found(WHOLE), Promise(), replicas_read=False)
    assert "replicas-differ" not in found.anomalies and found.notes == ("replicas were not compared (X2)",)


@pytest.mark.parametrize(
    "sums, judged",
    [
        (Sums(), False),
        (Sums(has_group=True), True),
        (Sums(has_group=True, has_members=True), True),
        (Sums(has_group=True, has_members=True, ended=True), True),
    ],
)
def test_x5_is_judged_where_there_is_a_group(sums: Sums, judged: bool) -> None:
    anomalies = verdict(Found(sums), Promise(), replicas_read=True).anomalies
    assert ("group-skipped" in anomalies) is judged
    assert ("group-unprocessed" in anomalies) is (sums.has_members and sums.ended)


def test_what_was_found_is_counted_and_breaks_the_promise() -> None:
    example = Example("a is gone", 0.5, "chaos", 0, (1,))
    found = verdict(Found(WHOLE, {"lost-acked": (12, [example])}), Promise(), replicas_read=True)
    assert found.anomalies["lost-acked"].count == 12 and found.anomalies["lost-acked"].examples == (example,)
    assert not found.sound and not found.kept and found.exit_code == 1
    assert verdict(Found(WHOLE, {"lost-acked": (12, [])}), Promise(lost="allowed"), replicas_read=True).sound


def test_x6_a_gap_that_is_longer_than_promised_is_an_anomaly() -> None:
    gaps = [Gap("chaos", 0, "all", 1.0, 4.0, True)]
    found = verdict(Found(WHOLE, gaps=gaps), Promise(available=(Availability(2.0),)), replicas_read=True)
    assert found.anomalies["unavailable"].count == 1 and not found.kept and found.stats["longest_gap_s"] == 3.0


@pytest.mark.parametrize(
    "began, ended, since, until, expected",
    [
        (None, None, None, 5.0, (0.0, 0.0, True)),
        (1.0, 3.0, None, 9.0, (1.0, 3.0, True)),
        (1.0, 3.0, 4.0, 5.0, (1.0, 3.0, True)),
        (1.0, 3.0, 4.0, 6.5, (4.0, 6.5, False)),
        (None, None, 4.0, 4.0, (0.0, 0.0, True)),
    ],
)
def test_x6_the_longest_gap_is_the_one_that_was_ended_or_the_one_that_is_open(
    began: float | None, ended: float | None, since: float | None, until: float, expected: tuple[float, float, bool]
) -> None:
    assert longest_gap(began, ended, since, until) == expected


def test_x6_faults_are_named_once_that_were_in_force_in_a_gap() -> None:
    faults = [("early", 0.0, 1.0), ("kill", 0.5, 2.0), ("kill", 2.5, None), ("late", 3.0, None), ("cut", 2.0, 2.9)]
    assert in_force(faults, 1.0, 3.0) == ("kill", "cut")


def test_a_long_cycle_is_cut_in_the_telling() -> None:
    told = told_cycle([f"operation {n}" for n in range(10)], 0.5, [1, 2])
    assert told.text.endswith("operation 7 -> 2 more -> operation 0") and told.operations == (1, 2)
