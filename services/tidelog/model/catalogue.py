"""Every check of `make model`: which rules at which bounds, and what is expected of them.

The figures in the notes are those of reliability 3.3 to 3.6. Its counts of states are larger where this model keeps less: it
forgets requests that nobody can obey any more, and knows a record by offset and epoch.
"""

from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

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


@cache
def all_checks() -> tuple[Check, ...]:
    """In the order of the table."""
    return tuple(epoch_checks())


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
