"""A story as the text of its file, with the state at its end as what must be seen, and the chain of its steps."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from tidelog.lab.digest import Chain, chain
from tidelog.lab.player import Player
from tidelog.lab.seed import SeedPlayer
from tidelog.lab.story import VERSION, Story, TopicPlan, simulated
from tidelog.lab.story_file import EXPECTATIONS_MAX, TIMEOUT_FIELDS
from tidelog.lab.view import View
from tidelog.testing.invariants import Violation
from tidelog.testing.stories import name_of, story_of


def written(story: Story) -> str:
    """Plays a story, whose own expectations do not count, and returns its file. StoryError, Violation."""
    player = Player(story)
    try:
        player.set_up()
        player.advance(story.duration_s)
        steps, seen = player.steps, list(_seen(player.cluster.view, story.duration_s))[:EXPECTATIONS_MAX]
    finally:
        player.close()
    kept = chain(steps)
    head = {
        "version": VERSION,
        "title": story.title,
        **({"text": story.text} if story.text else {}),
        "seed": story.seed,
    }
    cluster = {
        "brokers": story.brokers,
        "controllers": story.controllers,
        "timeouts": {
            **{name: f"{getattr(story.timing, each)}ms" for name, each in TIMEOUT_FIELDS.items()},
            "keepalive": f"{story.timing.keepalive_s:g}s",
        },
    }
    parts = [
        *(_line(name, value) for name, value in head.items()),
        _line("cluster", cluster),
        *_items("topics", map(_topic, story.topics)),
        _line("promise", story.promised),
        _line("duration", f"{story.duration_s:.6f}s"),
        *_items("actions", (beat.written for beat in story.beats)),
        *_items("expect", seen),
        _line("digest", _digest(kept)),
    ]
    return "\n".join(parts) + "\n"


def of_seed(seed: int) -> tuple[str, str]:
    """Plays a seed of the simulator. Returns the file of its run, and a line about its end."""
    kind = name_of(story_of(seed))
    player, failure = SeedPlayer(simulated(seed, kind)), ""
    try:
        player.advance(math.inf)
    except Violation as error:
        failure = str(error)
    finally:
        ended_s, kept = player.time, chain(player.steps)
        player.close()
    how = f"{'failed' if failure else 'held'} after {ended_s:.3f} s"
    parts = {
        "version": VERSION,
        "title": f"A run of the simulator ({kind}) that {how}",
        "text": failure or "Every check of the run held.",
        "seed": seed,
        "simulation": kind,
        "digest": _digest(kept),
    }
    first = failure.partition("\n")[0]
    return "".join(f"{_line(*each)}\n" for each in parts.items()), f"seed {seed} {how}" + (
        f": {first}" if first else ""
    )


def _digest(kept: Chain) -> dict[str, Any]:
    return {"steps": kept.steps, "every": kept.every, "links": kept.text()}


def _line(name: str, value: Any) -> str:
    return _flow({name: value})[1:-1]


def _items(name: str, values: Iterable[Mapping[str, Any]]) -> list[str]:
    lines = [f"  - {_flow(value)}" for value in values]
    return [f"{name}:", *lines] if lines else [f"{name}: []"]


def _flow(value: Any) -> str:
    """Returns YAML in one line."""
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=float("inf"), allow_unicode=True)
    return text.rstrip("\n")


def _topic(topic: TopicPlan) -> dict[str, Any]:
    settings = dict(topic.settings)
    least = int(settings.pop("min.insync.replicas"))
    where: dict[str, Any] = (
        {"replicas": [list(row) for row in topic.replicas]}
        if topic.replicas
        else {"partitions": topic.partitions, "replication factor": topic.replication_factor}
    )
    return {"name": topic.name, **where, "min isr": least, **({"settings": settings} if settings else {})}


def _seen(view: View, at_s: float) -> Iterable[dict[str, Any]]:
    at = f"{at_s:.6f}s"
    for name, state in view.processes().items():
        yield {"at": at, "process": name, "is": state}
    for each in view.partitions():
        yield {
            "at": at,
            "partition": f"{each.topic}-{each.number}",
            "leader": each.leader,
            "epoch": each.epoch,
            "isr": list(each.isr),
            "high_watermark": each.high_watermark,
            "log_ends": {broker: replica.log_end for broker, replica in each.at.items()},
        }
    for name in view.groups():
        group = view.group(name)
        yield {"at": at, "group": name, "generation": group.generation, "phase": group.phase}
