"""`tidelog perf produce`: kafka-producer-perf-test's flags and lines."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tidelog.cli import parse, perf_payload
from tidelog.cli.completion import NamedTopicOption
from tidelog.cli.connection import Connection, connected, stopped_by_signals
from tidelog.cli.errors import CommandError
from tidelog.cli.perf_stats import SendStats
from tidelog.cli.show import Format, FormatOption, note, print_json, print_table
from tidelog.errors import TidelogError
from tidelog.names import suggestion

if TYPE_CHECKING:
    from tidelog.client.producer import Ack, Producer
    from tidelog.ports.clock import Clock
    from tidelog.ports.rand import Rand

_PAUSE_S: Final = 0.001
"""The shortest: a load of many records a second is sent in small bursts."""
_REPORTED_MAX: Final = 10
"""Failures that are told one by one; more are only counted."""
_NUMBER_MAX: Final = 2**31 - 1

_NUMBERS: Final = {
    "linger.ms": "linger_ms",
    "batch.size": "batch_bytes",
    "buffer.memory": "buffer_bytes",
    "max.request.size": "request_bytes",
    "max.in.flight.requests.per.connection": "max_in_flight",
    "request.timeout.ms": "request_timeout_ms",
    "delivery.timeout.ms": "delivery_timeout_ms",
    "max.block.ms": "max_block_ms",
}
_TEXTS: Final = {"acks": "acks", "compression.type": "compression", "client.id": "client_id"}
_IDEMPOTENCE: Final = "enable.idempotence"
_KNOWN: Final = (*_NUMBERS, *_TEXTS, _IDEMPOTENCE)


@connected
async def produce(
    on: Connection,
    topic: NamedTopicOption,
    num_records: Annotated[int, typer.Option("--num-records", min=1, help="How many are sent.")],
    record_size: Annotated[
        int | None, typer.Option("--record-size", min=1, help="Bytes of each value: random capital letters.")
    ] = None,
    payload_file: Annotated[
        Path | None, typer.Option("--payload-file", help="Values from this file, drawn at random, instead.")
    ] = None,
    payload_delimiter: Annotated[
        str, typer.Option("--payload-delimiter", help="What stands between the values of the file.")
    ] = "\\n",
    payload_monotonic: Annotated[
        bool, typer.Option("--payload-monotonic", help="Values 0, 1, 2, ... as text, instead.")
    ] = False,
    throughput: Annotated[float, typer.Option("--throughput", help="Records a second; -1: as fast as they go.")] = -1,
    warmup_records: Annotated[
        int, typer.Option("--warmup-records", min=0, help="The first so many stay out of the steady state's line.")
    ] = 0,
    producer_props: Annotated[
        list[str] | None,
        typer.Option("--producer-props", metavar="KEY=VALUE", help=f"Of the producer, any of {', '.join(_KNOWN)}."),
    ] = None,
    reporting_interval_ms: Annotated[
        int, typer.Option("--reporting-interval", metavar="MS", min=1, help="Between two lines of progress.")
    ] = 5000,
    print_metrics: Annotated[
        bool, typer.Option("--print-metrics", help="The producer's own counts at the end.")
    ] = False,
    output: FormatOption = Format.TEXT,
) -> None:
    """Send records and tell how many a second were acknowledged, and how long each took. Exits 1 if one failed.

    Latency is from handing a record to the producer to its acknowledgement. With --format json the progress goes to the
    standard error. Ctrl-C ends it with the figures so far.

    Example: tidelog perf produce --topic events --num-records 100000 --record-size 1024 --producer-props acks=all
    """
    ports = on.ports
    payload = _payload(record_size, payload_file, payload_delimiter, payload_monotonic, ports.rand)
    if throughput != -1 and throughput <= 0:
        raise CommandError("--throughput is a number above 0, or -1", 2)
    if warmup_records >= num_records:
        raise CommandError(f"--warmup-records is {warmup_records}; it is less than --num-records, {num_records}", 2)
    options = _options(producer_props or ())

    say = note if output is Format.JSON else print
    async with on.producer(**options) as producer:
        await producer.partitions_of(topic)  # a topic that does not exist is told before anything is measured
        rate = None if throughput == -1 else throughput
        load = _Load(producer, ports.clock, topic, payload, rate, num_records, warmup_records)
        with stopped_by_signals(load.stop):
            await load.run(reporting_interval_ms / 1000, say)
    if output is Format.JSON:
        print_json({"topic": topic, **load.as_json(print_metrics)})
    else:
        load.print_totals(print_metrics)
    if load.failed:
        raise CommandError(f"{load.failed} of {load.sent} records failed")


class _Load:
    """Sends at its rate, and counts what comes back."""

    def __init__(
        self,
        producer: "Producer",
        clock: "Clock",
        topic: str,
        payload: perf_payload.Payload,
        per_s: float | None,
        records: int,
        warm_up: int,
    ) -> None:
        self._producer = producer
        self._clock = clock
        self._topic = topic
        self._payload = payload
        self._per_s = per_s
        self._records = records
        self._warm_up = warm_up
        self._stopped = False
        self.sent = 0
        self.failed = 0
        self._all = SendStats(clock.now())
        self._steady: SendStats | None = None
        self._ended_at = 0.0

    def stop(self) -> None:
        """What was sent is still waited for."""
        self._stopped = True

    async def run(self, interval_s: float, say: Callable[[str], None]) -> None:
        began = self._clock.now()
        self._all = SendStats(began)
        if self._warm_up:
            say(
                f"Warmup first {self._warm_up} records. Steady state results will print after the complete test summary."
            )
        else:
            self._steady = self._all
        async with asyncio.TaskGroup() as group:
            reporter = group.create_task(self._report(interval_s, say))
            try:
                await self._send_all(began)
                await self._producer.flush()
                await self._clock.sleep(0)  # the last acknowledgements have their callbacks still to run
            finally:
                reporter.cancel()
        self._ended_at = self._clock.now()

    async def _send_all(self, began: float) -> None:
        while self.sent < self._records and not self._stopped:
            due = self._records
            if self._per_s is not None:
                due = min(due, 1 + int((self._clock.now() - began) * self._per_s))
            while self.sent < due and not self._stopped:
                await self._send()
            if self._per_s is not None and self.sent < self._records:
                await self._clock.sleep(max(began + self.sent / self._per_s - self._clock.now(), _PAUSE_S))

    async def _send(self) -> None:
        if self._steady is None and self.sent >= self._warm_up:
            self._steady = SendStats(self._clock.now())
        value = self._payload(self.sent)
        self.sent += 1
        steady = self._steady if self._steady is not self._all else None
        try:
            ack = await self._producer.send(self._topic, value)
        except TidelogError as error:
            self._fail(error)
        else:
            ack.add_done_callback(partial(self._ended, self._clock.now(), len(value), steady))

    def _ended(self, began: float, size_bytes: int, steady: SendStats | None, ack: "Ack") -> None:
        error = ack.exception()
        if error is not None:
            self._fail(error)
            return
        took_s = self._clock.now() - began
        self._all.add(took_s, size_bytes)
        if steady is not None:
            steady.add(took_s, size_bytes)

    def _fail(self, error: BaseException) -> None:
        self.failed += 1
        if self.failed <= _REPORTED_MAX:
            note(f"tidelog: {error}")

    async def _report(self, interval_s: float, say: Callable[[str], None]) -> None:
        while True:
            await self._clock.sleep(interval_s)
            say(self._all.window_line(self._clock.now()))

    def print_totals(self, with_metrics: bool) -> None:
        print(self._all.total_line(self._ended_at))
        if self._warm_up and self._steady is not None:
            print(self._steady.total_line(self._ended_at, "steady state "))
        if with_metrics:
            rows = [(f"producer-metrics:{name}", f"{value:.3f}") for name, value in self._metrics().items()]
            print()
            print_table(("Metric Name", "Value"), rows)

    def as_json(self, with_metrics: bool) -> dict[str, Any]:
        found = {**self._all.as_json(self._ended_at), "failed": self.failed}
        if self._warm_up and self._steady is not None:
            found["steadyState"] = self._steady.as_json(self._ended_at)
        if with_metrics:
            found["metrics"] = self._metrics()
        return found

    def _metrics(self) -> dict[str, float]:
        return self._producer.stats.metrics()


def _payload(
    size: int | None, file: Path | None, delimiter: str, monotonic: bool, rand: "Rand"
) -> perf_payload.Payload:
    if sum((size is not None, file is not None, monotonic)) != 1:
        raise CommandError(
            "one and only one of these is required: --record-size, --payload-file, --payload-monotonic", 2
        )
    if size is not None:
        return perf_payload.random_values(size, rand)
    return perf_payload.numbers if file is None else perf_payload.values_of(file, delimiter, rand)


def _options(items: Sequence[str]) -> dict[str, Any]:
    """Kafka's names to the Producer's; several may stand in one argument, as Kafka's tool takes them."""
    options: dict[str, Any] = {}
    for key, value in parse.pairs("--producer-props", [item for text in items for item in text.split()]).items():
        name = key.replace("_", ".")
        if name in _NUMBERS:
            if not (value.isascii() and value.isdigit() and int(value) <= _NUMBER_MAX):
                raise CommandError(f"--producer-props {key}={value} is not a number from 0 to {_NUMBER_MAX}", 2)
            options[_NUMBERS[name]] = int(value)
        elif name in _TEXTS:
            options[_TEXTS[name]] = value
        elif name == _IDEMPOTENCE and value in ("true", "false"):
            options["enable_idempotence"] = value == "true"
        elif name == _IDEMPOTENCE:
            raise CommandError(f"--producer-props {key}={value} is not true or false", 2)
        else:
            raise CommandError(f"--producer-props {key!r} is not known{suggestion(name, _KNOWN)}", 2)
    if "request_bytes" in options:
        options["record_bytes_max"] = options["request_bytes"]  # in Kafka one setting is the limit of both
    return options
