"""What any run must have been like for its verdict to say something, and what every scenario promises without writing it down.

A load that was there when the faults came, in them and after them, at every ack level and with its readers; faults that took
effect; every send ended in its time, since every request ends within its deadline; and two readers of the final phase came to
the end.
"""

from collections import Counter
from collections.abc import Mapping
from math import inf
from typing import Final

from tidelog.chaos.checker.check import FINAL_READERS_MIN
from tidelog.chaos.checker.verdict import Kept, Verdict
from tidelog.chaos.chronicle import Chronicle
from tidelog.chaos.facts import Facts
from tidelog.chaos.scenario import Scenario, Workload
from tidelog.chaos.workload import PRODUCE_TIMEOUT_MS
from tidelog.ids import TopicPartition

UNACKNOWLEDGED: Final = "0"
PAUSE_MAX_S: Final = 5.0
"""Without a send, in a load with a rate: a client that was thrown away has a successor that may have to look for its leaders."""
SLACK_S: Final = 1.0
"""Of a machine that is busy."""


def premises(scenario: Scenario, facts: Facts, verdict: Verdict) -> list[Kept]:
    plan = scenario.workload
    readers = verdict.stats["final_readers"]
    enough = f"at least {FINAL_READERS_MIN}"
    return [
        _load_began(plan, facts),
        *_load_lasts(scenario, facts),
        *_load_goes_on(scenario, facts),
        *_faults_took_effect(scenario, facts),
        Kept("leaders told their high watermarks", facts.watermarks > 0, str(facts.watermarks), "at least 1"),
        _sends_end(plan, facts),
        Kept("readers that read the whole log at the end", readers >= FINAL_READERS_MIN, str(readers), enough),
    ]


def _levels(plan: Workload) -> list[str]:
    return sorted({producer.acks for producer in plan.producers} - {UNACKNOWLEDGED})


def _load_began(plan: Workload, facts: Facts) -> Kept:
    limit = facts.first_fault if facts.windows else facts.phases.get("heal", inf)
    began = {f"an acks={acks} record was acknowledged": facts.first_acked.get(acks, inf) for acks in _levels(plan)}
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


def _load_lasts(scenario: Scenario, facts: Facts) -> list[Kept]:
    """A fault hits nothing if it comes when nothing is sent. A load without a rate pauses when its client takes no more."""
    plan = scenario.workload
    if plan.rate is None or scenario.ends_with_load or "heal" not in facts.phases:
        return []
    pauses = {acks: facts.pauses.get(acks, inf) for acks in _levels(plan)}
    worst = max(pauses, key=pauses.__getitem__, default=None)
    if worst is None:
        return []
    measured = f"{pauses[worst]:.1f} s without one (acks={worst})" if pauses[worst] < inf else f"none of acks={worst}"
    limit = f"at most {PAUSE_MAX_S:g} s without one"
    return [Kept("records are sent until everything is healed", pauses[worst] <= PAUSE_MAX_S, measured, limit)]


def _load_goes_on(scenario: Scenario, facts: Facts) -> list[Kept]:
    """A load that ends by itself may be over before the last fault is."""
    plan = scenario.workload
    if not facts.windows or scenario.ends_with_load:
        return []
    last = {f"an acks={acks} record was acknowledged": facts.last_acked.get(acks, -1.0) for acks in _levels(plan)}
    if plan.consumers.assigned:
        last["a consumer read"] = -1.0 if facts.last_read is None else facts.last_read
    if plan.consumers.group or plan.consumers.agents:
        last["the group processed"] = max((t for t, _ in facts.processed), default=-1.0)
    over = [what for what, t in last.items() if t <= facts.healed]
    measured = f"not behind it: {', '.join(over)}" if over else f"until {min(last.values(), default=0.0):.1f} s"
    text = "every part of the load goes on after the last fault"
    return [Kept(text, not over, measured, f"behind {facts.healed:.1f} s")]


def _faults_took_effect(scenario: Scenario, facts: Facts) -> list[Kept]:
    """The history has them; of drawn faults one is enough."""
    asked = Counter(planned.fault.name for planned in scenario.faults)
    seen = Counter(window.fault for window in facts.windows.values() if window.effect is not None)
    missed = asked - seen
    if scenario.random is not None and not seen:
        missed = Counter({"any that was drawn": 1})
    if not asked and scenario.random is None:
        return []
    measured = f"not {', '.join(missed)}" if missed else str(seen.total())
    limit = f"at least {max(1, asked.total())}"
    return [Kept("the faults of the scenario took effect", not missed, measured, limit)]


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
    idle = [f"no acks={acks} record is acknowledged" for acks in _levels(plan) if not chronicle.acked_by[acks]]
    if plan.consumers.assigned and not chronicle.read_alone:
        idle.append("no consumer has read a record")
    if plan.consumers.group and not processed:
        idle.append("the group has processed no record")
    return idle
