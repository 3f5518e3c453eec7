"""Apache Kafka with ZooKeeper, from its own jars: the reference of B1 and B13. The jars are kept below build/."""

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

from bench import maven
from bench.harness import CannotRun
from tidelog.cluster.free_ports import free_ports
from tidelog.cluster.zookeeper import EmbeddedZooKeeper, ServerFiles, ZooKeeperUnavailable, find_java
from tidelog.ids import Address

VERSION: Final = "3.9.1"
"""The last line that runs with ZooKeeper."""
CACHE: Final = maven.BUILD / "kafka" / VERSION
ARTIFACTS: Final = (f"org.apache.kafka:kafka_2.13:{VERSION}", f"org.apache.kafka:kafka-tools:{VERSION}")
READY_S: Final = 60.0
TOOL_S: Final = 120.0
HEAP: Final = ("-Xms512m", "-Xmx512m")
SESSION_MS: Final = 60_000
"""A broker that is stopped while the other system is measured must not lose its session by that."""
SENT: Final = re.compile(r"^(\d+) records sent, ([0-9.]+) records/sec", re.MULTILINE)
RECORDS_MIN: Final = 2_000

LOGGING: Final = """\
log4j.rootLogger=WARN, stdout
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
log4j.appender.stdout.layout.ConversionPattern=%d %p %c{1}: %m%n
"""


async def fetch_jars(*, download: bool) -> Path:
    """The folder with Kafka's jars; CannotRun says why there is none."""
    return await maven.fetch_jars(CACHE, "Apache Kafka's", ARTIFACTS, download=download)


class Kafka:
    """ZooKeeper and `brokers` Kafka brokers, each in a JVM of its own."""

    def __init__(self, directory: Path, jars: Path, brokers: int) -> None:
        self._directory = directory
        self._jars = jars
        self._count = brokers
        self._zookeeper: EmbeddedZooKeeper | None = None
        self._brokers: list[asyncio.subprocess.Process] = []
        self.bootstrap = ""
        self._topics = 0
        self._records_per_s = 20_000.0

    async def __aenter__(self) -> Self:
        self._directory.mkdir(parents=True, exist_ok=True)
        (self._directory / "log4j.properties").write_text(LOGGING)
        try:
            await self._start()
        except ZooKeeperUnavailable as error:
            await self.__aexit__()
            raise CannotRun(f"not run: {error}") from error
        except TimeoutError as error:
            await self.__aexit__()
            raise CannotRun(f"not run: {self._count} Kafka brokers did not serve within {READY_S:g} s") from error
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def _start(self) -> None:
        port, *ports = free_ports(1 + self._count)
        address = Address("127.0.0.1", port)
        self._zookeeper = EmbeddedZooKeeper(ServerFiles(self._directory / "zookeeper", address))
        await asyncio.to_thread(self._zookeeper.start)
        await asyncio.to_thread(self._zookeeper.wait_ready)
        self.bootstrap = ",".join(f"127.0.0.1:{each}" for each in ports)
        for number, each in enumerate(ports):
            home = self._directory / f"broker-{number}"
            home.mkdir()
            settings = {
                "broker.id": number,
                "listeners": f"PLAINTEXT://127.0.0.1:{each}",
                "log.dirs": home / "data",
                "zookeeper.connect": address,
                "zookeeper.session.timeout.ms": SESSION_MS,
                "replica.lag.time.max.ms": SESSION_MS,
                "offsets.topic.replication.factor": 1,
                "min.insync.replicas": min(2, self._count),
                "auto.create.topics.enable": "false",
            }
            (home / "server.properties").write_text("".join(f"{k}={v}\n" for k, v in settings.items()))
            with (home / "out").open("wb") as out:
                self._brokers.append(
                    await asyncio.create_subprocess_exec(
                        *self._java("kafka.Kafka", str(home / "server.properties")), stdout=out, stderr=out
                    )
                )
        async with asyncio.timeout(READY_S):
            while await self._tool("org.apache.kafka.tools.TopicCommand", "--list") is None:
                if any(broker.returncode is not None for broker in self._brokers):
                    raise CannotRun("not run: a Kafka broker ended while it started")

    def _java(self, main: str, *arguments: str) -> Sequence[str]:
        logging = f"-Dlog4j.configuration=file:{self._directory / 'log4j.properties'}"
        return [find_java(os.environ), *HEAP, logging, "-cp", f"{self._jars}/*", main, *arguments]

    async def _tool(self, main: str, *arguments: str, bootstrap: bool = True) -> str | None:
        """What a tool printed; None when it failed."""
        extra = ("--bootstrap-server", self.bootstrap) if bootstrap else ()
        tool = await asyncio.create_subprocess_exec(
            *self._java(main, *extra, *arguments), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
        )
        try:
            async with asyncio.timeout(TOOL_S):
                printed, _ = await tool.communicate()
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                tool.kill()
            await tool.wait()
            raise
        return printed.decode() if tool.returncode == 0 else None

    async def __aexit__(self, *_: object) -> None:
        for broker in self._brokers:
            with contextlib.suppress(ProcessLookupError):
                broker.kill()
        for broker in self._brokers:
            await broker.wait()
        if self._zookeeper is not None:
            await asyncio.to_thread(self._zookeeper.stop)

    def signal(self, number: signal.Signals) -> None:
        """SIGSTOP and SIGCONT: the brokers take no CPU while another system is measured."""
        for broker in self._brokers:
            broker.send_signal(number)

    async def rate(
        self, *, record_bytes: int, batch_bytes: int, partitions: int, in_flight: int, seconds: float
    ) -> float:
        """Acknowledged record bytes a second of Kafka's own producer benchmark, acks=all, for about `seconds`."""
        topic = await self.new_topic(partitions)
        count = max(RECORDS_MIN, int(self._records_per_s * seconds))
        printed = await self._must(
            "org.apache.kafka.tools.ProducerPerformance",
            *("--topic", topic, "--num-records", str(count), "--record-size", str(record_bytes), "--throughput", "-1"),
            *("--producer-props", f"bootstrap.servers={self.bootstrap}", "acks=all", f"batch.size={batch_bytes}"),
            *(
                f"max.in.flight.requests.per.connection={in_flight}",
                "enable.idempotence=false",
                "compression.type=none",
            ),
            bootstrap=False,
        )
        found = SENT.findall(printed)
        if not found or int(found[-1][0]) != count:
            raise RuntimeError(f"Kafka's producer sent other than {count} records: {printed[-300:]}")
        self._records_per_s = float(found[-1][1])
        await self.delete_topic(topic)
        return self._records_per_s * record_bytes

    async def new_topic(self, partitions: int) -> str:
        """With a replica on every broker."""
        self._topics += 1
        topic, replicas = f"bench-{self._topics}", self._count
        await self._must(
            "org.apache.kafka.tools.TopicCommand",
            *("--create", "--topic", topic, "--partitions", str(partitions), "--replication-factor", str(replicas)),
        )
        return topic

    async def delete_topic(self, topic: str) -> None:
        await self._must("org.apache.kafka.tools.TopicCommand", "--delete", "--topic", topic)

    async def _must(self, main: str, *arguments: str, bootstrap: bool = True) -> str:
        printed = await self._tool(main, *arguments, bootstrap=bootstrap)
        if printed is None:
            raise RuntimeError(f"{main} {' '.join(arguments)} failed")
        return printed
