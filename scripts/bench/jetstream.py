"""The peer of B1J: NATS JetStream, three servers, a stream with three replicas in files, through nats-py."""

import asyncio
import contextlib
import shutil
import time
from pathlib import Path
from typing import Any, Final, Self

import nats
from nats.js.api import StorageType, StreamConfig
from nats.js.errors import Error as JetStreamError

from bench.harness import CannotRun
from tidelog.cluster.free_ports import free_ports

BUILD: Final = Path(__file__).resolve().parents[2] / "build"
SUBJECT: Final = "bench"
READY_S: Final = 30.0
CONFIG: Final = """
server_name: n{number}
listen: 127.0.0.1:{client_port}
jetstream {{ store_dir: "{store}", max_file_store: 64GB, max_memory_store: 256MB }}
cluster {{ name: bench, listen: 127.0.0.1:{cluster_port}, routes: [{routes}] }}
"""


async def nats_server() -> str:
    """The program: of this machine, or unpacked from Debian's package below build/, which needs no privileges."""
    program = shutil.which("nats-server", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    if program is not None:
        return program
    unpacked = BUILD / "debian-nats-server"
    if not (unpacked / "usr/sbin/nats-server").exists():
        unpacked.mkdir(parents=True, exist_ok=True)
        fetch = "apt-get download -qq nats-server && dpkg -x nats-server_*.deb ."
        shell = await asyncio.create_subprocess_exec("sh", "-c", fetch, cwd=unpacked, stderr=asyncio.subprocess.PIPE)
        _, said = await shell.communicate()
        if shell.returncode != 0:
            why = said.decode(errors="replace").strip().splitlines()
            raise CannotRun(f"nats-server could not be had from Debian's packages: {why[-1] if why else 'no reason'}")
    return str(unpacked / "usr/sbin/nats-server")


async def ignore(_error: Exception) -> None:
    """The client reports every server that is not up yet; it tries the next one by itself."""


class JetStream:
    """Three servers below `directory`; `publish_rate` is what a client sees acknowledged."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._servers: list[asyncio.subprocess.Process] = []
        self._client: Any = None
        self._stream: Any = None

    async def __aenter__(self) -> Self:
        program = await nats_server()
        ports = free_ports(6)
        routes = ", ".join(f"nats-route://127.0.0.1:{port}" for port in ports[3:])
        for number in range(3):
            home = self._directory / f"nats-{number}"
            home.mkdir(parents=True)
            text = CONFIG.format(
                number=number,
                client_port=ports[number],
                cluster_port=ports[3 + number],
                store=home / "store",
                routes=routes,
            )
            (home / "nats.conf").write_text(text)
            with (home / "log").open("wb") as log:
                server = await asyncio.create_subprocess_exec(
                    *(program, "-c", str(home / "nats.conf")), stdout=log, stderr=log
                )
            self._servers.append(server)
        try:
            async with asyncio.timeout(READY_S):
                self._client = await nats.connect(
                    [f"nats://127.0.0.1:{port}" for port in ports[:3]],
                    pending_size=64 << 20,
                    connect_timeout=5,
                    error_cb=ignore,
                )
                self._stream = self._client.jetstream(timeout=10)
                await self._create_stream()
        except TimeoutError as error:
            await self.__aexit__()
            raise CannotRun(f"three nats-servers did not become a cluster in {READY_S:g} s") from error
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def _create_stream(self) -> None:
        config = StreamConfig(name=SUBJECT, subjects=[SUBJECT], num_replicas=3, storage=StorageType.FILE)
        while True:
            # The three servers first have to elect a leader of their own.
            try:
                await self._stream.add_stream(config)
                return
            except (JetStreamError, nats.errors.Error):
                await asyncio.sleep(0.2)

    async def __aexit__(self, *_: object) -> None:
        if self._client is not None:
            with contextlib.suppress(nats.errors.Error):
                await self._client.close()
        for server in self._servers:
            with contextlib.suppress(ProcessLookupError):
                server.kill()
        for server in self._servers:
            await server.wait()

    async def publish_rate(self, message: bytes, window: int, seconds: float) -> float:
        """Bytes a second acknowledged by the stream's majority, `window` publishes in flight."""
        acked = 0
        end = time.perf_counter() + seconds

        async def publish() -> None:
            nonlocal acked
            while time.perf_counter() < end:
                await self._stream.publish(SUBJECT, message)
                acked += 1

        begin = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(window):
                group.create_task(publish())
        rate = acked * len(message) / (time.perf_counter() - begin)
        await self._stream.purge_stream(SUBJECT)
        return rate
