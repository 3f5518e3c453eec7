"""A disk that fails on demand, for processes that are started with this directory on PYTHONPATH.

The interpreter imports it before anything else. From then on `os.writev`, `os.pread` and `os.fdatasync`, through which a
broker reaches its logs, first look for a file FAULTS in the process's working directory, which names the call, a part of
the path, and what happens: an error number, or seconds that the call takes (until the file is gone, if that is sooner).
It stands for the device; no line of the product knows of it.
"""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

FAULTS = "disk-faults.json"
LOOK_AGAIN_S = 0.02


def _fault(call: str, fd: int) -> dict[str, Any] | None:
    try:
        fault: dict[str, Any] = json.loads(Path(FAULTS).read_text())
    except (FileNotFoundError, ValueError):  # none, or one that is being written
        return None
    return fault if fault["call"] == call and fault["path"] in os.readlink(f"/proc/self/fd/{fd}") else None


def _failing(call: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def run(fd: int, *arguments: Any) -> Any:
        began_at = time.monotonic()
        while (fault := _fault(call, fd)) is not None:
            if "errno" in fault:
                raise OSError(fault["errno"], os.strerror(fault["errno"]))
            if time.monotonic() - began_at >= fault["seconds"]:
                break
            time.sleep(LOOK_AGAIN_S)
        return real(fd, *arguments)

    return run


for _call in ("writev", "pread", "fdatasync"):
    setattr(os, _call, _failing(_call, getattr(os, _call)))
