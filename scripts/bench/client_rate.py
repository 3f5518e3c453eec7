"""B14: records a second of our producer, against librdkafka's on its mock cluster.

Both hand over one record of 1 KiB after the other from Python and count each acknowledgement, with the same batches, acks,
idempotence and linger. Neither's brokers keep anything: librdkafka's mock cluster runs in threads of its own process, our mock
brokers in a process of their own.
"""

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any, Final, Self

from bench.cluster import BATCH_BYTES, RECORD_BYTES
from bench.harness import Bench, CannotRun, Line, NoFigure, compared, take_turns
from tidelog.client.producer import Producer

NAMES: Final = ("B14",)
SCRIPTS: Final = Path(__file__).resolve().parent.parent
BROKERS: Final = 3
TOPIC: Final = "records"
LINGER_MS: Final = 5
IN_FLIGHT: Final = 5
BUFFER_BYTES: Final = 32 << 20
FLUSH_S: Final = 30.0
LOOK_EVERY: Final = 100
"""Records between two looks at the clock and, of librdkafka, at what is acknowledged."""


class Librdkafka:
    """Its producer, with the mock cluster that it brings along."""

    def __init__(self) -> None:
        try:
            import confluent_kafka
        except ImportError:
            raise CannotRun("confluent-kafka is not installed; it is in the development packages") from None
        self.version: str = confluent_kafka.libversion()[0]
        self._acked = 0
        self._producer: Any = confluent_kafka.Producer(
            {
                "bootstrap.servers": "mock",
                "test.mock.num.brokers": BROKERS,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": LINGER_MS,
                "batch.size": BATCH_BYTES,
                "max.in.flight.requests.per.connection": IN_FLIGHT,
                "queue.buffering.max.kbytes": BUFFER_BYTES >> 10,
                "on_delivery": self._delivered,
                "log_level": 0,
            }
        )

    def _delivered(self, error: object, _message: object) -> None:
        if error is not None:
            raise RuntimeError(f"the mock cluster refused a record: {error}")
        self._acked += 1

    def rate(self, value: bytes, seconds: float) -> float:
        producer, self._acked = self._producer, 0
        begin = time.perf_counter()
        while time.perf_counter() - begin < seconds:
            for _ in range(LOOK_EVERY):
                while True:
                    try:
                        producer.produce(TOPIC, value)
                        break
                    except BufferError:
                        producer.poll(0.01)  # its buffer is full
            producer.poll(0)
        if left := producer.flush(FLUSH_S):
            raise RuntimeError(f"{left} records were not acknowledged in {FLUSH_S:g} s")
        return self._acked / (time.perf_counter() - begin)


class MockBrokers:
    """Ours, in one process."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self.bootstrap = ""

    async def __aenter__(self) -> Self:
        packages = os.environ.get("PYTHONPATH", "")
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.mock_broker"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(SCRIPTS), packages)))},
        )
        assert self._process.stdout is not None
        self.bootstrap = (await self._process.stdout.readline()).decode().strip()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._process is not None
        await self._process.communicate(b"")

    async def rate(self, value: bytes, seconds: float) -> float:
        acked = 0

        def count(ack: asyncio.Future[Any]) -> None:
            nonlocal acked
            ack.result()  # raises if it was not acknowledged
            acked += 1

        async with Producer(
            self.bootstrap,
            acks="all",
            linger_ms=LINGER_MS,
            batch_bytes=BATCH_BYTES,
            max_in_flight=IN_FLIGHT,
            buffer_bytes=BUFFER_BYTES,
        ) as producer:
            begin = time.perf_counter()
            while time.perf_counter() - begin < seconds:
                for _ in range(LOOK_EVERY):
                    (await producer.send(TOPIC, value)).add_done_callback(count)
            await producer.flush()
            return acked / (time.perf_counter() - begin)


async def run(bench: Bench) -> list[Line]:
    value = os.urandom(RECORD_BYTES)
    try:
        reference = Librdkafka()
    except CannotRun as reason:
        return [NoFigure("B14", str(reason))]
    async with MockBrokers() as brokers:
        taken = await take_turns(
            bench,
            {
                "librdkafka": lambda s: asyncio.to_thread(reference.rate, value, s),
                "ours": lambda s: brokers.rate(value, s),
            },
            references=("librdkafka",),
        )
    what = f" of librdkafka {reference.version} from Python on its mock cluster"
    return [
        compared(
            "B14", taken["ours"], taken["librdkafka"], unit="records/s", target="at least 0.15, good 0.4", what=what
        )
    ]
