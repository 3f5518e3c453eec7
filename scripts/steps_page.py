"""The page of diagrams that a lab draws: a produce, an election and a rebalance, step by step."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tidelog.ids import TopicPartition
from tidelog.lab import Lab
from tidelog.watch.formats import mermaid
from tidelog.watch.kinds import FAMILIES
from tidelog.watch.order import Told
from tidelog.watch.text import of_partition

PAGE: Final = Path("docs/internals/steps.md")
TP: Final = TopicPartition("events", 0)
GROUP: Final = "readers"
_HEAD: Final = """# Protocol steps

Diagrams of what processes do, drawn by `make generate` from events of the [lab](../guide/lab.md). An arrow goes from the process
whose step led to this one. `tidelog watch --format mermaid` draws the same of a running cluster, and
[architecture.md](architecture.md) names the code of each step.
"""


def page() -> str:
    sections = [
        (
            "A record is produced with acks=all",
            "The high watermark advances when both followers have the record.",
            _produce(),
        ),
        ("A leader is killed", "A record is produced meanwhile; the new leader acknowledges it.", _election()),
        ("A member of a group is killed", "Its partitions go to the other member when its session ends.", _rebalance()),
    ]
    return _HEAD + "".join(
        f"\n## {title}\n\n{text}\n\n```mermaid\n{drawing}\n```\n" for title, text, drawing in sections
    )


def _produce() -> str:
    with Lab(seed=1, partitions=1) as lab:
        before = lab.time
        lab.produce(TP.topic, 1)
        lab.run(0.2)
        return _drawn(of_partition(_since(lab, before), TP))


def _election() -> str:
    with Lab(seed=1, partitions=1) as lab:
        lab.produce(TP.topic, 1)
        lab.run(1.0)
        before = lab.time
        lab.kill(f"broker-{lab.partition(*TP).leader}")
        lab.produce(TP.topic, 1)
        lab.run(1.0)
        return _drawn(of_partition(_since(lab, before), TP))


def _rebalance() -> str:
    with Lab(seed=1, partitions=2) as lab:
        first, _ = lab.join(GROUP, TP.topic, members=2)
        lab.run(5.0)
        before = lab.time
        lab.kill(first)
        lab.until(lambda view: len(view.group(GROUP).members) == 1)
        lab.run(1.0)
        kinds = (*FAMILIES["coordinator"], *FAMILIES["member"])
        return _drawn(each for each in _since(lab, before) if isinstance(each.event.fields, kinds))


def _since(lab: Lab, t: float) -> list[Told]:
    return [Told(step.process, step.life, step.event) for step in lab.events() if step.t >= t]


def _drawn(events: Iterable[Told]) -> str:
    return "\n".join(mermaid(list(events)))
