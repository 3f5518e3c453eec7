"""One operating-system process with a home: its data, its log file and its pid file.

The pid file holds pid and creation time, so that another program (or the same one, later) can find the process again
and never touches a stranger that was given the same pid.
"""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil

from tidelog.cluster import zookeeper
from tidelog.cluster.api import ClusterError, State
from tidelog.cluster.process_life import life_of
from tidelog.cluster.wait import until

PID_SUFFIX: Final = ".pid"
END_SUFFIX: Final = ".end"
"""The file with this suffix names the signal that has ended a process, for programs that are not its parent."""

LINE_BYTES: Final = 400
"""How long a log line is taken to be when only the end of a file is read."""

OUR_PROGRAMS: Final = frozenset({"tidelog.broker", "tidelog.controller", zookeeper.MAIN_CLASS})
"""Arguments that tell a process of a cluster from a stranger."""

GONE_WITHIN_S: Final = 10.0
"""A process that does not die of SIGKILL in this time is stuck in the kernel."""


@dataclass(slots=True)
class OsProcess:
    name: str
    home: Path
    _child: subprocess.Popen[bytes] | None = field(default=None, init=False, repr=False)

    @property
    def log_file(self) -> Path:
        return self.home / f"{self.name}.log"

    @property
    def pid_file(self) -> Path:
        return self.home / f"{self.name}{PID_SUFFIX}"

    @property
    def end_file(self) -> Path:
        return self.home / f"{self.name}{END_SUFFIX}"

    @property
    def exit_code(self) -> int | None:
        """Of the process that this program has started last, once it has ended; negative for a signal."""
        return None if self._child is None else self._child.poll()

    def why_stopped(self) -> str:
        """The exit code or the signal; empty where this program is not its parent, and none has sent it a signal."""
        code = self.exit_code
        if code is not None:
            return f"exit code {code}" if code >= 0 else signal.Signals(-code).name
        try:
            return self.end_file.read_text().strip()
        except FileNotFoundError:
            return ""

    def find(self) -> psutil.Process | None:
        """The live process, or None. A zombie is dead."""
        try:
            life = self.pid_file.read_text().strip()
            process = psutil.Process(int(life.partition(" ")[0]))
            if life_of(process.pid) == life and process.status() != psutil.STATUS_ZOMBIE:
                return process
        except (FileNotFoundError, ValueError, psutil.NoSuchProcess):
            pass  # it never ran here, or has ended
        if self._child is not None:
            self._child.poll()  # whoever ended it, its parent has to reap it
        return None

    def state(self) -> State:
        process = self.find()
        if process is None:
            return State.STOPPED
        try:
            return State.PAUSED if process.status() == psutil.STATUS_STOPPED else State.RUNNING
        except psutil.NoSuchProcess:
            return State.STOPPED

    def start(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        """`env` is its whole environment. ClusterError when it runs already."""
        running = self.find()
        if running is not None:
            raise ClusterError(f"{self.name} already runs as process {running.pid}")
        if self._child is not None:
            # Another program ended it: it looks dead while its threads still end, and only then can it be reaped.
            self._child.wait(GONE_WITHIN_S)
        self.home.mkdir(parents=True, exist_ok=True)
        self.end_file.unlink(missing_ok=True)
        with self.log_file.open("ab") as log:
            # A session of its own: Ctrl-C in the terminal must not reach it before its owner has decided what happens,
            # and a signal to its group reaches the workers that it may have.
            self._child = subprocess.Popen(
                argv,
                env=env,
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        written = self.pid_file.with_suffix(".new")
        written.write_text(f"{life_of(self._child.pid)}\n")
        written.replace(self.pid_file)

    def signal(self, number: signal.Signals) -> None:
        """To the process and whatever it started. ClusterError when it does not run."""
        process = self.find()
        if process is None:
            raise ClusterError(f"{self.name} does not run")
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            raise ClusterError(f"{self.name} does not run") from None

    def terminate(self) -> None:
        """SIGTERM to the process alone: it ends its workers itself. Harmless when it does not run."""
        process = self.find()
        if process is not None:
            self.end_file.write_text(f"{signal.SIGTERM.name}\n")
            try:
                process.terminate()
                process.resume()  # a paused process could not act on it
            except psutil.NoSuchProcess:
                pass  # it ended in between, which is what was wanted

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.end_file.write_text(f"{signal.SIGKILL.name}\n")
        self.wait_gone(GONE_WITHIN_S)

    def wait_gone(self, timeout_s: float) -> None:
        def gone() -> bool:
            # A process whose threads are still ending looks dead, but its parent cannot reap it yet.
            return self.find() is None and (self._child is None or self._child.poll() is not None)

        until(gone, f"the end of {self.name}", timeout_s=timeout_s, interval_s=0.01)

    def wait_state(self, state: State, timeout_s: float = 5.0) -> None:
        until(lambda: self.state() is state, f"{self.name} {state.value}", timeout_s=timeout_s, interval_s=0.01)


def processes_below(base: Path) -> list[OsProcess]:
    """Every process that was ever started with a home directly below `base`."""
    return [OsProcess(pid_file.stem, pid_file.parent) for pid_file in sorted(base.glob(f"*/*{PID_SUFFIX}"))]


def unrecorded_below(base: Path) -> list[psutil.Process]:
    """Processes of a cluster that no pid file names: their owner was interrupted between the start and the writing.

    Known by what they run and where; a shell that somebody has open in such a directory is no such process.
    """
    recorded = {found.pid for process in processes_below(base) if (found := process.find()) is not None}
    return [
        process
        for process in psutil.process_iter(["pid", "cwd", "cmdline", "status"])
        if process.info["pid"] not in recorded
        and process.info["status"] != psutil.STATUS_ZOMBIE
        and Path(process.info["cwd"] or "/").parent == base.resolve()
        and any(word in OUR_PROGRAMS for word in process.info["cmdline"] or ())
    ]


def kill_unrecorded(base: Path) -> None:
    for process in unrecorded_below(base):
        try:
            process.kill()
        except psutil.NoSuchProcess:
            pass  # it ended in between, which is what was wanted


def tail(path: Path, lines: int) -> str:
    """The newest lines of a log file; empty when there is none."""
    try:
        with path.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(0, size - LINE_BYTES * lines))
            return "\n".join(log.read().decode(errors="replace").splitlines()[-lines:])
    except FileNotFoundError:
        return ""
