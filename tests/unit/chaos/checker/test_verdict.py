"""Values that go into files come out of them as they were; what makes a run pass or fail."""

import json

import pytest

from tidelog.chaos.checker.promise import Availability, Promise
from tidelog.chaos.checker.replicas import PartitionReplicas, ReplicaLog, Stretch
from tidelog.chaos.checker.verdict import Anomaly, Example, Gap, Kept, Verdict
from tidelog.ids import TopicPartition

BAD = Anomaly(2, False, (Example("a is gone", 1.5, "chaos", 0, (3, 4)), Example("b is gone", 2.5)))
TOLERATED = Anomaly(2, True, BAD.examples)
CLEAN = Anomaly(0, False)
KEPT = Kept("nothing acknowledged is lost", True, "0", "0")
BROKEN = Kept("unavailable", False, "9.1 s", "8 s")


def test_a_verdict_survives_its_file() -> None:
    verdict = Verdict(
        {"lost-write": BAD, "G0": TOLERATED, "unseen": CLEAN},
        (Gap("chaos", 0, "all", 1.25, 3.5, True, ("kill leader of 0",)),),
        (KEPT, BROKEN),
        {"sends": {"ok": 5}},
        False,
        ("the history was cut off",),
    )
    found = json.loads(json.dumps(verdict.to_json()))
    assert Verdict.from_json(found) == verdict
    assert found["gaps"][0]["seconds"] == 2.25
    assert (found["sound"], found["kept"], found["complete"]) == (False, False, False)


@pytest.mark.parametrize(
    "anomaly, promise, complete, code",
    [
        (CLEAN, KEPT, True, 0),
        (TOLERATED, KEPT, True, 0),
        (BAD, KEPT, True, 1),
        (CLEAN, BROKEN, True, 1),
        (CLEAN, KEPT, False, 3),
        (BAD, KEPT, False, 1),
        (CLEAN, BROKEN, False, 1),
    ],
)
def test_the_exit_code_says_broken_before_it_says_cut_off(
    anomaly: Anomaly, promise: Kept, complete: bool, code: int
) -> None:
    verdict = Verdict({"x": CLEAN, "lost-write": anomaly}, promises=(promise,), complete=complete)
    assert verdict.exit_code == code
    assert verdict.sound is not anomaly.bad and verdict.kept is promise.kept


def test_a_promise_that_is_judged_elsewhere_counts_as_well() -> None:
    assert Verdict({}).with_promises(KEPT, BROKEN).promises == (KEPT, BROKEN)
    assert Verdict({}, promises=(KEPT,)).with_promises(BROKEN).exit_code == 1


@pytest.mark.parametrize(
    "promise",
    [
        Promise(),
        Promise("one-copy", True, (Availability(8.0), Availability(0.5, (TopicPartition("chaos", 1),), "all")), 500),
    ],
)
def test_a_promise_survives_its_file(promise: Promise) -> None:
    assert Promise.from_json(json.loads(json.dumps(promise.to_json()))) == promise


def test_a_promise_with_an_unknown_field_is_refused() -> None:
    with pytest.raises(TypeError, match="losst"):
        Promise.from_json({"losst": "none"})


def test_what_replicas_hold_survives_its_file() -> None:
    replicas = PartitionReplicas("chaos", 0, 7, (ReplicaLog(1, 0, 9, (Stretch(0, 5, "ab"), Stretch(5, 9, "cd"))),))
    assert PartitionReplicas.from_json(json.loads(json.dumps(replicas.to_json()))) == replicas
