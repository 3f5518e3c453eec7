"""Tells a process apart from an earlier one with its number, whatever happens to the clock of the machine."""

from pathlib import Path
from typing import Final

import psutil

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def life_of(pid: int) -> str:
    """The number, when it began, and since which boot. NoSuchProcess if it does not run.

    The kernel counts from the boot. psutil adds the time of day of the boot, which moves with a clock that is set.
    """
    began_s = psutil.Process(pid).create_time() - psutil.boot_time()
    return f"{pid} {began_s:.2f} {BOOT_ID.read_text().strip()}"
