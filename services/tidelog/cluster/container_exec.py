"""Commands in a running container, whose output comes back whole or not at all.

An engine may hand back the exit code of a short command without what it printed (moby 27289, docker-py 2042), most of all
on a busy machine, and of two streams it may be one. So a command has one stream, which ends with a mark, and is run again
where the mark is missing.
"""

from collections.abc import Sequence
from typing import Any, Final

from tidelog.cluster.api import ClusterError

TRIES: Final = 5
_ENDED: Final = "--tidelog-ended--"
_SCRIPT: Final = f'exec 2>&1; "$@"; code=$?; echo {_ENDED}; exit $code'


def run_in(container: Any, command: Sequence[str]) -> tuple[int, str]:
    """Exit code and output, both streams together. `command` must bear being run again.

    ClusterError if none of `TRIES` runs gave its output back.
    """
    for _ in range(TRIES):
        code, output = container.exec_run(["sh", "-c", _SCRIPT, "sh", *command])
        text, mark, _rest = output.decode(errors="replace").rpartition(_ENDED)
        if mark:
            return code, text
    raise ClusterError(f"{' '.join(command)} in {container.name}: {TRIES} runs, and the output of none came back")
