"""Ends a local cluster when its owner is gone, however it went.

`python -m tidelog.cluster.guard BASE` reads its standard input, whose other end only the owner holds. The end of it
without the word `release` means that the owner died: by Ctrl-C twice, by SIGTERM, by SIGKILL. A parent-death signal
would not do: the kernel ties it to the thread that started the child, and a thread may end long before its process.
"""

import subprocess
import sys
from pathlib import Path
from typing import Final

from tidelog.cluster.os_process import kill_unrecorded, processes_below

RELEASE: Final = b"release"


class Guard:
    """The owner's end."""

    def __init__(self, base: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tidelog.cluster.guard", str(base)],
            stdin=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the owner
        )

    def release(self) -> None:
        """The cluster is down, or is to outlive its owner."""
        self._process.communicate(RELEASE, timeout=30.0)


def main(base: str) -> int:
    if sys.stdin.buffer.read() == RELEASE:
        return 0
    for process in processes_below(Path(base)):
        if process.find() is not None:
            process.kill()
    kill_unrecorded(Path(base))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
