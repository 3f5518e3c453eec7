"""Which sessions live and which ephemeral znodes they hold, as the ZooKeeper server knows that decides about their end.

That is the leader, or a server alone; the others pass heartbeats on and are told later. Asked with the four-letter word `dump`
(ZooKeeper Administrator's Guide, "The Four Letter Words").
"""

import re
from collections.abc import Iterable
from typing import Final

from tidelog.cluster.api import ClusterError, Sessions
from tidelog.cluster.zookeeper import four_letter_word
from tidelog.ids import Address

ANSWERS_WITHIN_S: Final = 3.0
"""A late answer is as good: it tells of the time in which it was asked for."""
_DECIDES: Final = re.compile(r"^(?:Global )?Session Sets \(", re.MULTILINE)
"""A follower prints `Global Sessions`, without times at which they expire."""
_SESSION: Final = re.compile(r"^\t(0x[0-9a-f]+)$")
_HOLDER: Final = re.compile(r"^(0x[0-9a-f]+):$")
_EPHEMERALS: Final = "ephemeral nodes dump:"


def parse_dump(answer: str) -> Sessions | None:
    """None: this server does not decide."""
    if not _DECIDES.search(answer):
        return None
    sessions, _, ephemerals = answer.partition(_EPHEMERALS)
    alive = frozenset(int(found[1], 16) for line in sessions.splitlines() if (found := _SESSION.match(line)))
    holders: dict[str, int] = {}
    holder: int | None = None
    for line in ephemerals.splitlines():
        if found := _HOLDER.match(line):
            holder = int(found[1], 16)
        elif line.startswith("\t/") and holder is not None:
            holders[line[1:]] = holder
    return Sessions(alive, holders)


def sessions_at(servers: Iterable[Address]) -> Sessions:
    """ClusterError while none of them decides, with what each said."""
    said = []
    for address in servers:
        try:
            answer = four_letter_word(address, "dump", ANSWERS_WITHIN_S)
        except OSError as error:
            said.append(f"{address}: {error}")
            continue
        if (found := parse_dump(answer)) is not None:
            return found
        said.append(f"{address}: {answer.strip().partition(chr(10))[0] or 'an empty answer'}")
    raise ClusterError(f"no ZooKeeper server that leads tells which sessions live ({'; '.join(said)})")
