"""Whether a run may use its checkpoint and its output. Pure: what lies there is an argument."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

IDENTITY_FILE: Final = "tidelog-job.json"
"""In the checkpoint, beside Spark's own files: which job it belongs to."""

SINK_LOG: Final = "_spark_metadata"
"""In the output of Spark's file sink: which files are whole. Spark reads no others."""


@dataclass(frozen=True, slots=True)
class Place:
    """What is there before the run."""

    checkpoint: str
    identity: str | None
    """The text of IDENTITY_FILE."""
    checkpoint_names: frozenset[str]
    """What else the checkpoint holds."""
    batches: int
    """That are finished by its own account."""
    output: str | None = None
    """None: the results go to a topic."""
    output_names: frozenset[str] = frozenset()
    """What the output holds, without the checkpoint if that is in it."""


def check(place: Place, identity: Mapping[str, Any]) -> None:
    """ValueError when the run would mix two jobs, or would leave out or repeat records without a word.

    Spark itself goes by the batches' numbers alone: a new checkpoint with an old output skips the first batches as done
    already, and an old checkpoint with a new output never writes them.
    """
    if place.identity is None:
        _check_new(place)
    else:
        _check_known(place, place.identity, identity)


def _check_new(place: Place) -> None:
    if place.checkpoint_names:
        raise ValueError(
            f"--checkpoint {place.checkpoint} holds something that is not of such a job; name another directory"
        )
    if place.output_names:
        example = min(place.output_names)
        raise ValueError(
            f"--output {place.output} is not empty (it holds {example}), and --checkpoint {place.checkpoint} knows nothing of "
            "it; name the checkpoint that it was written with, or another directory"
        )


def _check_known(place: Place, text: str, identity: Mapping[str, Any]) -> None:
    try:
        before = json.loads(text)
    except ValueError:
        before = None
    if not isinstance(before, dict):
        raise ValueError(f"{place.checkpoint}/{IDENTITY_FILE} is damaged; name another checkpoint and start anew")
    for name in (*identity, *before):
        was, is_ = before.get(name), identity.get(name)
        if was != is_:
            raise ValueError(
                f"--checkpoint {place.checkpoint} is of another job: its {name} is {_shown(was)}, here it is {_shown(is_)}; "
                "go on with the same options, or start anew with another checkpoint"
            )
    if place.batches and place.output is not None and SINK_LOG not in place.output_names:
        raise ValueError(
            f"--checkpoint {place.checkpoint} has finished {place.batches} batches, and their output {place.output} is gone; "
            "bring it back, or start anew with another checkpoint"
        )


def _shown(value: Any) -> str:
    return "not set" if value in (None, "", False) else str(value) if value is not True else "set"
