"""The memory that a piece of work takes, in Python and in C."""

import ctypes
from pathlib import Path


class PeakMemory:
    """The most memory of this process above what it had at the start."""

    def __init__(self) -> None:
        ctypes.CDLL(None).malloc_trim(0)  # what is free already would hide a growth
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        self._before = _memory("VmRSS")

    @property
    def growth_bytes(self) -> int:
        return _memory("VmHWM") - self._before


def _memory(name: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) << 10
