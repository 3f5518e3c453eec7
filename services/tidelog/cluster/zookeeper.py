"""A ZooKeeper server for local mode and for tests, from the jars that PySpark's package carries (design section 1).

Nothing is downloaded and nothing heavy is imported: PySpark is looked up, not loaded.
"""

import contextlib
import importlib.util
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

from tidelog.ids import Address

JAR_PREFIXES: Final = ("zookeeper-", "slf4j-api-", "log4j-", "netty-", "metrics-core-", "snappy-java-")
"""What the server needs of the 250 jars: half the memory and half the start time of the whole folder."""

MAIN_CLASS: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
TICK_MS: Final = 500
"""Sessions expire on whole ticks, and none is shorter than two of them; 500 allows sessions from 1 s."""
MAX_SESSION_MS: Final = 60_000
FOLLOWS_WITHIN_MS: Final = 3_000
"""A server of an ensemble that has not heard of its leader for so long looks for another one; sessions outlive that."""

LOGGING: Final = """\
status = error
appender.file.type = File
appender.file.name = file
appender.file.fileName = {log}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{ISO8601}} %p %c{{1}}: %m%n
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
"""


class ZooKeeperUnavailable(Exception):
    """The server cannot run here; the message is one line and says what to install."""


def find_java(environ: Mapping[str, str]) -> str:
    """Path of `java`: JAVA_HOME's, else the first on PATH."""
    home = environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else None
    found = found or shutil.which("java", path=environ.get("PATH"))
    if found is None:
        raise ZooKeeperUnavailable(
            "java was not found: install a Java 17 runtime (Debian: apt-get install openjdk-17-jre-headless) "
            "or set JAVA_HOME"
        )
    return found


def find_jars() -> list[Path]:
    """The jars of JAR_PREFIXES in PySpark's package, sorted."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ZooKeeperUnavailable(
            "PySpark, whose jars carry ZooKeeper, is not installed: pip install 'tidelog[spark]'"
        )
    folder = Path(spec.origin).parent / "jars"
    jars = sorted(jar for jar in folder.glob("*.jar") if jar.name.startswith(JAR_PREFIXES))
    if not any(jar.name.startswith("zookeeper-") for jar in jars):
        raise ZooKeeperUnavailable(f"no zookeeper-*.jar in {folder}: reinstall pyspark as the lock file names it")
    return jars


@dataclass(frozen=True, slots=True)
class ServerFiles:
    """One server's directory: its configuration, data and log. Two servers never share one."""

    directory: Path
    address: Address
    tick_ms: int = TICK_MS
    heap_mb: int = 256
    number: int = 1
    ensemble: Mapping[int, tuple[Address, Address]] = field(default_factory=dict)
    """Of every server, this one too, by number: where it listens to the others, and for votes. Empty for one alone."""

    @property
    def log(self) -> Path:
        return self.directory / "zookeeper.log"

    @property
    def output(self) -> Path:
        """What the Java process itself prints: only a failed start says anything."""
        return self.directory / "zookeeper.out"

    def write(self) -> None:
        """Writes configuration; what is there already is replaced, data are kept."""
        data = self.directory / "data"
        data.mkdir(parents=True, exist_ok=True)
        servers = {f"server.{n}": f"{q.host}:{q.port}:{e.port}" for n, (q, e) in self.ensemble.items()}
        if servers:
            (data / "myid").write_text(f"{self.number}\n")
        settings = {
            "tickTime": self.tick_ms,
            "minSessionTimeout": 2 * self.tick_ms,
            "maxSessionTimeout": MAX_SESSION_MS,
            "dataDir": data,
            "clientPort": self.address.port,
            "clientPortAddress": self.address.host,
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "dump,mntr,ruok,srvr",
            "autopurge.snapRetainCount": 3,
            "autopurge.purgeInterval": 1,
            "initLimit": FOLLOWS_WITHIN_MS // self.tick_ms,
            "syncLimit": FOLLOWS_WITHIN_MS // self.tick_ms,
            **servers,
        }
        lines = "".join(f"{name}={value}\n" for name, value in settings.items())
        (self.directory / "zoo.cfg").write_text(lines)
        (self.directory / "log4j2.properties").write_text(LOGGING.format(log=self.log))

    def command(self, environ: Mapping[str, str]) -> list[str]:
        """The process to start; ZooKeeperUnavailable when Java or the jars are missing."""
        return [
            find_java(environ),
            f"-Xmx{self.heap_mb}m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",  # a local server lives for minutes: the second compiler costs more than it gives
            f"-Dlog4j2.configurationFile={self.directory / 'log4j2.properties'}",
            "-cp",
            ":".join(map(str, find_jars())),
            MAIN_CLASS,
            str(self.directory / "zoo.cfg"),
        ]

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """`environ` without the variables that change or announce a JVM's options."""
        return {k: v for k, v in environ.items() if k not in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")}


def four_letter_word(address: Address, word: str, timeout_s: float) -> str:
    """The server's answer to `ruok`, `srvr`, `mntr` or `dump`; OSError when there is none in time."""
    with socket.create_connection(address, timeout=timeout_s) as connection:
        connection.sendall(word.encode())
        parts = []
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts).decode(errors="replace")


def mode_of(answer: str) -> str:
    """What a server says to `srvr` that it is; empty while it serves nobody."""
    found = re.search(r"^Mode: (\w+)$", answer, re.MULTILINE)
    return found[1] if found else ""


def check_free(address: Address) -> None:
    """ZooKeeperUnavailable when something listens there already; it would answer for a server that failed to start."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
        except OSError as error:
            raise ZooKeeperUnavailable(f"ZooKeeper cannot listen on {address}: {error.strerror}") from None


@dataclass(slots=True)
class EmbeddedZooKeeper:
    """One server process. The directory survives `kill` and `stop`; `start` after them is a restart."""

    files: ServerFiles
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    _process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> Address:
        return self.files.address

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Returns when the process exists; `wait_ready` waits until it serves."""
        assert not self.running, "already started"
        command = self.files.command(self.environ)
        check_free(self.address)
        self.files.write()
        with self.files.output.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                cwd=self.files.directory,
                env=self.files.environment(self.environ),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C in the terminal is for the owner, who stops this one in order
            )

    def ready(self, timeout_s: float = 1.0) -> bool:
        """Whether it serves now. `ruok` is answered some time before the first session is."""
        try:
            return bool(mode_of(four_letter_word(self.address, "srvr", timeout_s)))
        except OSError:
            return False

    def wait_ready(self, timeout_s: float = 30.0) -> None:
        """ZooKeeperUnavailable with the server's last words if it ends or does not serve in time."""
        deadline = time.monotonic() + timeout_s
        while not self.ready():
            if not self.running:
                raise ZooKeeperUnavailable(f"ZooKeeper ended while starting: {self._last_words()}")
            if time.monotonic() > deadline:
                raise ZooKeeperUnavailable(f"ZooKeeper did not serve within {timeout_s} s; see {self.files.log}")
            time.sleep(0.05)

    def stop(self, timeout_s: float = 10.0) -> None:
        """SIGTERM, then SIGKILL; harmless when it has ended."""
        if self._process is None:
            return
        self.resume()
        self._process.terminate()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        assert self._process is not None, "not started"
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nobody answers. Returns when the last of its threads stands still."""
        self._signal(signal.SIGSTOP)
        if self._process is not None and self._process.returncode is None:
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def _last_words(self) -> str:
        """The last exception in what it printed or logged, else the last line."""
        for path in (self.files.output, self.files.log):
            lines = path.read_text(errors="replace").strip().splitlines() if path.exists() else []
            exceptions = [line for line, below in pairwise(lines) if below.startswith("\tat ") and line[:1] != "\t"]
            if lines:
                return (exceptions or lines)[-1]
        return "it left no message"
