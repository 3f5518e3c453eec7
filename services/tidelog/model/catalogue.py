"""Every check of `make model`: which rules at which bounds, and what is expected of them.

Documented depths are those of reliability 3.3, 3.5 and 5.2, which count steps as these models do. Those of 3.6 are shorter:
there a follower's position reaches the leader with its fetch, here with the next one. The documents count more states in 3.3
(1 665 204 and 683 278): this model forgets requests that nobody can obey any more, and knows a record by its offset and epoch.
"""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

from tidelog.model import alter_isr, controllers, groups, restarts
from tidelog.model.epochs import Bounds, Cut, EpochModel, Rules
from tidelog.model.search import Model

RIGHT: Final = "right"


@dataclass(frozen=True, slots=True)
class Check:
    """`mutant` is empty for a rule set that must hold."""

    key: str
    section: str
    rules: str
    bounds: str
    model: Model[Any]
    mutant: bool
    depth_max: int | None = None
    weight: int = 0
    """Expected thousands of states: the longest goes first, so that both cores end together."""
    depth: int | None = None
    """Length of the shortest trace in the documents, where they give one for these very rules."""


UNFENCED: Final = Rules(
    cut_in_epoch=False, fetch_in_epoch=False, count_in_epoch=False, join_in_epoch=False, join_at_epoch_start=False
)
TIDELOG: Final = Rules(on_fetch=True)
"""F15.4: the leader answers a fetch with the divergence, and the fetch names its epoch."""

FIVE: Final = (
    ("MUT-1", Rules(count_in_epoch=False), "the high watermark ignores the follower's epoch", 12, 95),
    ("MUT-2", Rules(join_at_epoch_start=False), "no rule of the leader epoch's start for joiners", 11, 65),
    ("MUT-3", Rules(join_in_epoch=False), "joining the ISR ignores the follower's epoch", 14, 215),
    ("MUT-4", Rules(fetch_in_epoch=False), "a fetch is not fenced by epoch", 16, 520),
    ("MUT-5", Rules(cut_in_epoch=False), "truncation is not fenced by epoch", 13, 185),
)
HISTORY: Final = (
    ("HISTORY-HW", replace(UNFENCED, cut=Cut.HIGH_WATERMARK), "truncate to the high watermark", 8, 16),
    ("HISTORY-101", replace(UNFENCED, cut=Cut.KIP_101), "KIP-101", 10, 50),
    ("HISTORY-279", UNFENCED, "KIP-279, nothing fenced", 10, 50),
    (
        "HISTORY-320",
        replace(UNFENCED, on_fetch=True, join_at_epoch_start=True),
        "KIP-320, first try: cuts on fetch, no epoch in it",
        12,
        165,
    ),
)


def epoch_check(
    key: str, rules: str, model_rules: Rules, bounds: Bounds, *, mutant: bool, weight: int, depth: int | None = None
) -> Check:
    text = f"{bounds.slots} slots, {bounds.records} records, {bounds.epochs} epochs"
    return Check(key, "3.3", rules, text, EpochModel(model_rules, bounds), mutant, weight=weight, depth=depth)


def epoch_checks() -> list[Check]:
    checks = []
    for name, rules, weights in (("KIP-320", Rules(), (360, 218, 900)), ("Tidelog", TIDELOG, (520, 330, 1300))):
        for bounds, weight in zip((Bounds(2, 2, 4), Bounds(3, 3, 3), Bounds(3, 3, 4)), weights, strict=True):
            check = epoch_check(
                f"{RIGHT}-{name}", f"all five rules, {name}", rules, bounds, mutant=False, weight=weight
            )
            checks.append(replace(check, depth_max=17) if bounds == Bounds(3, 3, 4) else check)
    large = Bounds(3, 3, 4)
    for key, rules, text, depth, weight in FIVE + HISTORY:
        checks.append(epoch_check(key, text, rules, large, mutant=True, weight=weight, depth=depth))
    return checks


ALTER_ISR: Final = (
    ("MUT-6", alter_isr.Rules(counted=alter_isr.Counted.COMMITTED), "high watermark over the committed ISR only", 7),
    ("MUT-7", alter_isr.Rules(counted=alter_isr.Counted.PROPOSED), "a shrink is applied before it is confirmed", 4),
    ("MUT-8", alter_isr.Rules(kept_on_timeout=False), "a change that timed out is rolled back", 8),
    ("MUT-9", alter_isr.Rules(version_checked=False), "the controller ignores the version", 7),
)
NUMBERED: Final = alter_isr.Rules(dead_for_good=False, numbered=True)
"""What Tidelog does: a suspicion passes within one life, any message may come again, and controllers follow each other."""

REPEATED: Final = (
    (
        "REPEATED",
        alter_isr.Rules(dead_for_good=False),
        alter_isr.Bounds(2, 4),
        "a suspicion passes, and a request without a number that was refused under it arrives again",
    ),
    (
        "REPEATED-TERM",
        replace(NUMBERED, term_named=False),
        alter_isr.Bounds(2, 3, numbers=2, terms=2),
        "the same, with numbers that a new controller does not know and requests that name no term",
    ),
)
"""No mutants of the list: they show why each request is judged once, and only in the term that it names."""


def alter_isr_checks() -> list[Check]:
    def check(key: str, text: str, rules: alter_isr.Rules, bounds: alter_isr.Bounds, **rest: Any) -> Check:
        bounds_text = f"{bounds.records} records, {bounds.versions} versions"
        if rules.numbered:
            bounds_text += f", {bounds.numbers} requests, {bounds.terms} terms"
        return Check(key, "3.5", text, bounds_text, alter_isr.AlterIsrModel(rules, bounds), **rest)

    small, large = alter_isr.Bounds(2, 4), alter_isr.Bounds(2, 5)
    terms = replace(small, numbers=3, terms=2)
    return [
        check("right-AlterIsr", "all rules, any message again", alter_isr.Rules(), large, mutant=False, weight=480),
        check("right-AlterIsr", "suspicions pass, requests are numbered", NUMBERED, terms, mutant=False, weight=430),
        *(check(key, text, rules, small, mutant=True, depth=depth) for key, rules, text, depth in ALTER_ISR),
        *(check(key, text, rules, bounds, mutant=True) for key, rules, bounds, text in REPEATED),
    ]


RESTARTS: Final = (
    ("MUT-11", restarts.Rules(bounces_seen=False), "no bounce detection"),
    ("MUT-12", restarts.Rules(life_checked=False), "no broker epoch in AlterIsr"),
    ("MUT-13", restarts.Rules(veto=False), "no veto for the last replica that lost its log"),
    ("MUT-14", restarts.Rules(frozen_under_min_isr=False), "the high watermark advances below min ISR"),
    ("MUT-6", restarts.Rules(pending_counted=False), "high watermark over the committed ISR only"),
)
ONE_LOSS: Final = restarts.Bounds(records=1, lossy=1, kills=1, departures=2)
NO_RESTART_RULES: Final = restarts.Rules(bounces_seen=False, life_checked=False, veto=False)


def restart_checks() -> list[Check]:
    def check(key: str, text: str, rules: restarts.Rules, bounds: restarts.Bounds, **rest: Any) -> Check:
        faults = f"{bounds.lossy} lossy, {bounds.kills} kills, {bounds.departures} departures"
        return Check(key, "3.6", text, faults, restarts.RestartModel(rules, bounds), **rest)

    right, kills = restarts.Rules(), replace(ONE_LOSS, lossy=0, kills=2)
    return [
        check("right-restarts", "bounces, lives and veto (D)", right, ONE_LOSS, mutant=False, weight=200),
        check(
            "right-restarts",
            "the same, two brokers lose their logs",
            right,
            replace(ONE_LOSS, lossy=2),
            mutant=False,
            weight=1760,
        ),
        check(
            "right-kills", "none of them, but nothing is ever lost", NO_RESTART_RULES, kills, mutant=False, weight=150
        ),
        *(check(key, text, rules, ONE_LOSS, mutant=True, weight=50) for key, rules, text in RESTARTS),
    ]


def controller_checks() -> list[Check]:
    def check(key: str, text: str, rules: controllers.Rules, bounds: controllers.Bounds, **rest: Any) -> Check:
        bounds_text = f"{bounds.terms} terms, {bounds.versions} versions"
        return Check(key, "two", text, bounds_text, controllers.ControllerModel(rules, bounds), **rest)

    return [
        check(
            "right-controllers",
            "every multi checks the epoch",
            controllers.Rules(),
            controllers.Bounds(3, 4),
            mutant=False,
            weight=60,
        ),
        check(
            "MUT-10",
            "multis check no epoch",
            controllers.Rules(epoch_checked=False),
            controllers.Bounds(3, 3),
            mutant=True,
        ),
    ]


GROUPS: Final = (
    ("MUT-17", groups.Rules(commit_fenced=False), "a commit is not fenced by generation", 9),
    ("MUT-18", groups.Rules(ack_processed=False), "the answer to Stop states what was fetched", 4),
    ("MUT-19", groups.Rules(order_compared=False), "Start and Stop without comparison", None),
    ("MUT-20", groups.Rules(store_conditional=False), "the store is written without a condition", 7),
    ("COMMIT-FETCHED", groups.Rules(commit_processed=False), "a commit states what was fetched", 3),
    ("ACK-ALL", groups.Rules(ack_counts=groups.Counts.ALL), "every answer to Stop counts", None),
)
"""The documents have 8 steps for MUT-19, without an eviction, and 9 for ACK-ALL, where assigning is a step of its own."""

ONE_RECORD: Final = groups.Bounds(records=1, generations=4)
TWO_RECORDS: Final = groups.Bounds(records=2, generations=3)


def group_checks() -> list[Check]:
    def check(key: str, text: str, rules: groups.Rules, bounds: groups.Bounds, **rest: Any) -> Check:
        bounds_text = f"{bounds.records} records, {bounds.generations} generations"
        model = groups.GroupModel(rules, bounds, owners_only=rest.pop("owners_only", False))
        return Check(key, "5.2", text, bounds_text, model, **rest)

    right, by_generation = groups.Rules(), groups.Rules(epoch_compared=False)
    again = groups.Bounds(records=1, generations=3, again=True)
    return [
        check("right-groups", "all rules", right, ONE_RECORD, mutant=False, weight=400),
        check("right-groups", "all rules", right, TWO_RECORDS, mutant=False, weight=400),
        check("right-groups", "Start and Stop may come again", right, again, mutant=False, weight=110),
        check(
            "right-groups",
            "generations compared, not epochs",
            by_generation,
            replace(again, again=False),
            mutant=False,
            weight=60,
        ),
        *(check(key, text, rules, TWO_RECORDS, mutant=True, depth=depth) for key, rules, text, depth in GROUPS),
        check(
            "ZOMBIE",
            "neither a condition in the store nor epochs compared",
            replace(by_generation, store_conditional=False),
            TWO_RECORDS,
            mutant=True,
            owners_only=True,
        ),
        check(
            "ACK-OWNERS",
            "an answer to Stop counts from whoever has started, in whichever generation",
            groups.Rules(ack_counts=groups.Counts.OWNERS),
            ONE_RECORD,
            mutant=True,
        ),
        check(
            "REPEATED-START",
            "a Start that comes again begins again",
            groups.Rules(repeat_ignored=False),
            again,
            mutant=True,
        ),
    ]


@cache
def all_checks() -> tuple[Check, ...]:
    """In the order of the table."""
    return (*epoch_checks(), *alter_isr_checks(), *restart_checks(), *controller_checks(), *group_checks())


def chosen(only: str) -> list[Check]:
    """Checks whose key or section is one of `only`, a list with commas; empty for all. ValueError names what is unknown."""
    checks = all_checks()
    wanted = [word.strip().lower() for word in only.split(",") if word.strip()]
    known = {name for check in checks for name in _names(check)}
    if unknown := [word for word in wanted if word not in known]:
        raise ValueError(
            f"no check {unknown[0]!r}; there are {', '.join(sorted({c.key for c in checks}))} and sections"
        )
    return [check for check in checks if not wanted or _names(check) & set(wanted)]


def _names(check: Check) -> set[str]:
    return {check.key.lower(), check.section, RIGHT if not check.mutant else "mutants"}
