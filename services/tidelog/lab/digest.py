"""Digests of the steps of a story: one of all, and a chain that tells from which step on two runs differ."""

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidelog.lab.steps import Act, Step
from tidelog.watch.formats import plain

LINK_BYTES: Final = 2
"""A difference that one link does not show is in all that follow."""
LINKS_MAX: Final = 40_000
"""A story with more steps has a link for every second step, and so on."""


@dataclass(frozen=True, slots=True)
class Chain:
    steps: int
    every: int
    """Steps to a link."""
    links: bytes

    def text(self) -> str:
        return base64.b64encode(self.links).decode()

    @classmethod
    def parse(cls, steps: int, every: int, text: str) -> "Chain":
        """ValueError: the text does not hold as many links as there are."""
        links = base64.b64decode(text, validate=True)
        if len(links) != LINK_BYTES * (steps // every):
            raise ValueError(f"{len(links)} bytes are not {LINK_BYTES} for each of {steps // every} links")
        return cls(steps, every, links)

    def differs_from(self, steps: Sequence[Step | Act]) -> int | None:
        """Returns the number of the first step, from 0, of which it is known that it differs; None if all are the same."""
        made = chain(steps, self.every).links
        for place in range(0, min(len(made), len(self.links)), LINK_BYTES):
            if made[place : place + LINK_BYTES] != self.links[place : place + LINK_BYTES]:
                return place // LINK_BYTES * self.every
        return None if len(steps) == self.steps else min(len(steps), self.steps)


def chain(steps: Sequence[Step | Act], every: int | None = None) -> Chain:
    """Each link is of all steps up to there."""
    every = every or max(1, -(-len(steps) // LINKS_MAX))
    digest, links = hashlib.sha256(), bytearray()
    for number, step in enumerate(steps, 1):
        digest.update(encoded(step).encode() + b"\n")
        if number % every == 0:
            links += digest.copy().digest()[:LINK_BYTES]
    return Chain(len(steps), every, bytes(links))


def whole(steps: Sequence[Step | Act]) -> str:
    """Returns a digest of every field of every event, and of the acts between them."""
    digest = hashlib.sha256()
    for step in steps:
        digest.update(encoded(step).encode() + b"\n")
    return digest.hexdigest()


def encoded(step: Step | Act) -> str:
    """Returns one line of JSON."""
    return json.dumps(as_json(step), separators=(",", ":"))


def as_json(step: Step | Act) -> dict[str, Any]:
    t = round(step.t, 6)
    if isinstance(step, Act):
        return {"t": t, "say" if step.narrated else "act": step.text}
    cause = step.cause
    return {
        "t": t,
        "process": step.process,
        "life": step.life,
        "number": step.event.number,
        "wall_ns": step.event.wall_ns,
        "kind": step.kind,
        "subject": plain(step.subject if step.subject is None else str(step.subject)),
        "cause": None if cause is None else list(cause),
        "fields": plain(step.fields),
    }
