"""Keys of `tidelog top`: they choose the first partition on the screen, show the help, and end it."""

import re
from collections.abc import Mapping
from typing import Final

HELP: Final = (
    "Keys of tidelog top",
    "",
    "j, down           next partition",
    "k, up             partition before it",
    "space, page down  next page of partitions",
    "b, page up        page before it",
    "g, home           the worst partitions",
    "?                 this help; any key ends it",
    "q, Ctrl-C         end",
    "",
    "OUT     replicas on a broker that are not in their ISR",
    "BEHIND  records that they lack",
    "HW      where committed records end",
    "LEO     where the leader's log ends",
    "LAG     records that the slowest replica lacks",
)
HINT: Final = "  ?: keys"

_KEY: Final = re.compile(rb"\x1b[\[O][0-9;]*[A-Za-z~]|.", re.DOTALL)
_ROWS: Final[Mapping[bytes, int]] = {b"j": 1, b"\x1b[B": 1, b"\x1bOB": 1, b"k": -1, b"\x1b[A": -1, b"\x1bOA": -1}
_PAGES: Final[Mapping[bytes, int]] = {b" ": 1, b"\x1b[6~": 1, b"b": -1, b"\x1b[5~": -1}
_HOME: Final = (b"g", b"\x1b[H", b"\x1bOH", b"\x1b[1~")


class Keys:
    """The choices so far."""

    def __init__(self) -> None:
        self.first = 0
        """Partitions above the screen."""
        self.helps = False
        self.quits = False

    def press(self, typed: bytes, page: int, partitions: int) -> None:
        """Takes what one read of the keyboard gives; a closed keyboard gives nothing and ends it."""
        self.quits = self.quits or not typed
        for key in _KEY.findall(typed):
            if key in (b"q", b"Q"):
                self.quits = True
            elif self.helps or key == b"?":
                self.helps = not self.helps
            elif key in _HOME:
                self.first = 0
            else:
                self.first += _ROWS.get(key, 0) + page * _PAGES.get(key, 0)
                self.first = max(0, min(self.first, partitions - 1))
