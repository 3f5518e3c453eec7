"""Whether a run may use its checkpoint and its output."""

import json
from typing import Any

import pytest

from tidelog.pipeline.jobs.checkpoints import Place, check

IDENTITY = {"job": "ingest", "topic": "events", "schema": "", "include-headers": False}


def place(**changes: Any) -> Place:
    """One that has been used."""
    found: dict[str, Any] = {
        **{"checkpoint": "file:/c", "output": "file:/o", "batches": 3},
        "identity": json.dumps(IDENTITY),
        "checkpoint_names": frozenset({"offsets", "commits"}),
        "output_names": frozenset({"_spark_metadata", "topic=events"}),
    }
    return Place(**{**found, **changes})


NEW: dict[str, Any] = {"identity": None, "checkpoint_names": frozenset(), "output_names": frozenset(), "batches": 0}


def test_a_new_checkpoint_with_an_empty_output_is_fine() -> None:
    check(place(**NEW), IDENTITY)
    check(place(**NEW, output=None), IDENTITY)


def test_the_same_job_goes_on() -> None:
    check(place(), IDENTITY)


def test_a_job_that_was_killed_before_its_first_batch_goes_on() -> None:
    check(place(batches=0, output_names=frozenset()), IDENTITY)


@pytest.mark.parametrize(
    "changes, complaint",
    [
        (
            {**NEW, "output_names": {"part-1"}},
            r"file:/o is not empty \(it holds part-1\), and --checkpoint file:/c knows",
        ),
        ({**NEW, "checkpoint_names": {"offsets"}}, "file:/c holds something that is not of such a job"),
        ({"identity": "{"}, "tidelog-job.json is damaged"),
        ({"identity": "[]"}, "tidelog-job.json is damaged"),
        ({"identity": json.dumps({**IDENTITY, "topic": "other"})}, "its topic is other, here it is events"),
        (
            {"identity": json.dumps({**IDENTITY, "include-headers": True})},
            "its include-headers is set, here it is not set",
        ),
        ({"identity": json.dumps({**IDENTITY, "window": "5 ms"})}, "its window is 5 ms, here it is not set"),
        ({"output_names": frozenset()}, "has finished 3 batches, and their output file:/o is gone"),
        ({"output_names": {"topic=events"}}, "is gone"),
    ],
)
def test_what_would_lose_repeat_or_mix_records_is_refused(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        check(place(**changes), IDENTITY)
