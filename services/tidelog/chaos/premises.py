"""What any run must have been like for its verdict to say something, and what every scenario promises without writing it down.

A load that was there when the faults came, at every ack level and with its readers; every send ended in its time (reliability
9: every request ends within its deadline); and two readers of the final phase came to the end.
"""

from collections.abc import Mapping
from math import inf
from typing import Final

from tidelog.chaos.checker.check import FINAL_READERS_MIN
from tidelog.chaos.checker.verdict import Kept, Verdict
from tidelog.chaos.chronicle import Chronicle
from tidelog.chaos.facts import Facts
from tidelog.chaos.scenario import Workload
from tidelog.chaos.workload import PRODUCE_TIMEOUT_MS
from tidelog.ids import TopicPartition

UNACKNOWLEDGED: Final = "0"
SLACK_S: Final = 1.0
"""Of a machine that is busy."""


def premises(plan: Workload, facts: Facts, verdict: Verdict) -> list[Kept]:
    readers = verdict.stats["final_readers"]
    enough = f"at least {FINAL_READERS_MIN}"
    return [
        _load_began(plan, facts),
        _sends_end(plan, facts),
        Kept("readers that read the whole log at the end", readers >= FINAL_READERS_MIN, str(readers), enough),
    ]


def _load_began(plan: Workload, facts: Facts) -> Kept:
    limit = facts.first_fault if facts.windows else facts.phases.get("heal", inf)
    levels = sorted({producer.acks for producer in plan.producers} - {UNACKNOWLEDGED})
    began = {f"an acks={acks} record was acknowledged": facts.first_acked.get(acks, inf) for acks in levels}
    if plan.consumers.assigned:
        began["a consumer had read"] = inf if facts.first_read is None else facts.first_read
    if plan.consumers.group:
        began["the group had processed"] = min((t for t, _ in facts.processed), default=inf)
    if plan.consumers.agents:
        began["the agents owned their partitions"] = min((each.t for each in facts.assigned), default=inf)
    late = [what for what, t in began.items() if t >= limit]
    since = max(began.values(), default=0.0)
    measured = f"before {', '.join(late)}" if late else f"{since:.1f} s"
    return Kept("every part of the load runs before the first fault", not late, measured, f"before {limit:.1f} s")


def _sends_end(plan: Workload, facts: Facts) -> Kept:
    """By the delivery timeout, and an attempt that is on its way then."""
    text = "every send is answered or given up in time"
    limits: dict[str, float] = {}
    for producer in plan.producers:
        limit_s = producer.delivery_timeout_s + PRODUCE_TIMEOUT_MS / 1000 + SLACK_S
        limits[producer.acks] = max(limit_s, limits.get(producer.acks, 0.0))
    told = [f"{limit_s:g} s (acks={acks})" for acks, limit_s in sorted(limits.items())]
    alike = len(set(limits.values())) == 1
    limit = f"at most {max(limits.values()):g} s" if alike else f"at most {', '.join(told)}"
    if facts.open:
        return Kept(text, False, f"{len(facts.open)} never ended", limit)
    over = [acks for acks, seconds in facts.slowest_s.items() if seconds > limits.get(acks, inf)]
    worst = max(facts.slowest_s, key=lambda acks: facts.slowest_s[acks] - limits.get(acks, inf), default=None)
    measured = "nothing was sent" if worst is None else f"{facts.slowest_s[worst]:.1f} s (acks={worst})"
    return Kept(text, not over and worst is not None, measured, limit)


def idle_parts(plan: Workload, chronicle: Chronicle, processed: Mapping[TopicPartition, int]) -> list[str]:
    """What of the load has not begun yet, in words. `processed` is the group's."""
    levels = sorted({producer.acks for producer in plan.producers} - {UNACKNOWLEDGED})
    idle = [f"no acks={acks} record is acknowledged" for acks in levels if not chronicle.acked_by[acks]]
    if plan.consumers.assigned and not chronicle.read_alone:
        idle.append("no consumer has read a record")
    if plan.consumers.group and not processed:
        idle.append("the group has processed no record")
    return idle
