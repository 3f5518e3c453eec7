"""File descriptors: connections and logs share those of the process, so each has a part of its own."""

import resource
from typing import Final

from tidelog.runtime.rpc_options import CONNECTIONS

RESERVED: Final = 120
"""For ZooKeeper, checkpoints, scrapes, connections to others and whatever the interpreter opens."""


def raise_limit() -> int:
    """Raises the soft limit to the hard one, and returns it. By default Linux lets a process have 1,024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return 2**31 - 1 if hard == resource.RLIM_INFINITY else hard


def files_max(limit: int, wanted: int) -> int:
    """Returns how many files of logs may be open: as many as are wanted, and at most half of the limit."""
    return max(1, min(wanted, (limit - RESERVED) // 2))


def connections_max(limit: int, files: int, listeners: int) -> int:
    """Returns how many connections each listener accepts beside so many files."""
    return max(1, min(CONNECTIONS, (limit - RESERVED - files) // listeners))
