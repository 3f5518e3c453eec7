"""`tidelog verifiable-producer` and `verifiable-consumer`: clients for tests that tell everything, one JSON object a line.

Flags, names of events and their fields are those of Kafka's tools of these names.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from tidelog.cli import completion
from tidelog.cli.completion import NamedTopicOption
from tidelog.cli.connection import Connection, connected, stopped_by_signals
from tidelog.cli.errors import CommandError

if TYPE_CHECKING:
    from tidelog.client.groups import GroupMetadata
    from tidelog.client.producer import RecordMetadata
    from tidelog.client.records import ConsumerRecord
    from tidelog.ids import TopicPartition
    from tidelog.ports.clock import Clock

MaxOption = Annotated[int, typer.Option("--max-messages", help="So many, and then the end; -1: until it is stopped.")]
RESETS: Final = ("earliest", "latest", "none")


producer_app = typer.Typer(add_completion=False)
consumer_app = typer.Typer(add_completion=False)


@producer_app.command("verifiable-producer")
@connected
async def verifiable_producer(
    on: Connection,
    topic: NamedTopicOption,
    max_messages: MaxOption = -1,
    throughput: Annotated[int, typer.Option("--throughput", help="Records a second; -1: as fast as they go.")] = -1,
    acks: Annotated[str, typer.Option("--acks", help="all, 1 or 0; -1 is all.")] = "-1",
    create_time: Annotated[
        int, typer.Option("--message-create-time", help="Unix ms of the first record; -1: that of the clock.")
    ] = -1,
    value_prefix: Annotated[
        str | None, typer.Option("--value-prefix", metavar="P", help="Values are P.0, P.1, ... instead of 0, 1, ...")
    ] = None,
    repeating_keys: Annotated[
        int | None, typer.Option("--repeating-keys", metavar="N", min=1, help="Keys 0 to N-1 in turn; default: none.")
    ] = None,
) -> None:
    """Send numbered records and print what becomes of each. Ends in order on SIGTERM and Ctrl-C; exits 1 if one failed.

    Example: tidelog verifiable-producer --topic events --max-messages 1000 --throughput 100 --acks all
    """
    if throughput == 0 or throughput < -1 or max_messages < -1:
        raise CommandError("--throughput and --max-messages are numbers above 0, or -1", 2)

    from tidelog.chaos.sources import Numbers
    from tidelog.chaos.verifiable_producer import SendFailed, VerifiableProducer

    ports = on.ports
    events = _ProducerEvents(ports.clock, topic, throughput)
    async with on.producer(acks=acks) as producer:
        await producer.partitions_of(topic)  # a topic that does not exist is told before anything is sent
        sender = VerifiableProducer(
            producer,
            topic,
            ports.clock,
            events,
            islice(
                Numbers("" if value_prefix is None else f"{value_prefix}.", repeating_keys),
                None if max_messages < 0 else max_messages,
            ),
            per_s=None if throughput < 0 else float(throughput),
            create_time_ms=None if create_time < 0 else create_time,
        )
        events.say("startup_complete")
        try:
            with stopped_by_signals(sender.stop):
                await sender.run()
                await producer.flush()
        except SendFailed:
            pass  # the event of that record has told it
    events.end()
    if events.acked != events.sent:
        raise typer.Exit(1)


@consumer_app.command("verifiable-consumer")
@connected
async def verifiable_consumer(
    on: Connection,
    topic: NamedTopicOption,
    group_id: Annotated[
        str, typer.Option("--group-id", help="The group that it joins.", autocompletion=completion.groups)
    ],
    instance_id: Annotated[
        str | None,
        typer.Option("--group-instance-id", help="A name that it keeps, and its partitions, over a restart."),
    ] = None,
    session_timeout_ms: Annotated[
        int, typer.Option("--session-timeout", metavar="MS", min=1, help="Of its membership.")
    ] = 10_000,
    enable_autocommit: Annotated[
        bool, typer.Option("--enable-autocommit", help="Commit now and then, instead of after each poll.")
    ] = False,
    reset_policy: Annotated[
        str, typer.Option("--reset-policy", metavar="|".join(RESETS), help="Where nothing is committed.")
    ] = "earliest",
    strategy: Annotated[
        str, typer.Option("--assignment-strategy", help="range, roundrobin or sticky; default: the coordinator's.")
    ] = "",
    max_messages: MaxOption = -1,
    verbose: Annotated[bool, typer.Option("--verbose", help="Also every record (record_data).")] = False,
) -> None:
    """Read as a member of a group and print what it gets, gives back and commits. Ends in order on SIGTERM and Ctrl-C.

    Example: tidelog verifiable-consumer --topic events --group-id g --max-messages 1000
    """
    if reset_policy not in RESETS:
        raise CommandError(f"--reset-policy {reset_policy!r} is none of {', '.join(RESETS)}", 2)
    if max_messages == 0 or max_messages < -1:
        raise CommandError("--max-messages is a number above 0, or -1", 2)

    from tidelog.chaos.verifiable_consumer import VerifiableConsumer

    ports = on.ports
    events = _ConsumerEvents(ports.clock, verbose)
    await on.reach([topic])
    consumer = on.consumer(
        group=group_id,
        topics=[topic],
        consumer_id=instance_id,
        static=instance_id is not None,
        session_timeout_ms=session_timeout_ms,
        auto_commit=enable_autocommit,
        auto_offset_reset="error" if reset_policy == "none" else reset_policy,
        assignor=strategy,
        on_assigned=events.assigned,
        on_revoked=events.revoked,
        on_lost=events.revoked,
    )
    async with consumer:
        reader = VerifiableConsumer(consumer, ports.clock, events, commits=not enable_autocommit)
        events.say("startup_complete")
        with stopped_by_signals(reader.stop):
            await reader.run(None if max_messages < 0 else max_messages)
    events.say("shutdown_complete")


class _Events:
    def __init__(self, clock: "Clock") -> None:
        self._clock = clock

    def say(self, name: str, **fields: Any) -> None:
        print(json.dumps({"timestamp": self._clock.wall_ms(), "name": name, **fields}), flush=True)


class _ProducerEvents(_Events):
    def __init__(self, clock: "Clock", topic: str, throughput: int) -> None:
        super().__init__(clock)
        self.sent = 0
        self.acked = 0
        self._topic = topic
        self._throughput = throughput
        self._began = clock.now()
        self._open: dict[int, tuple[str | None, str]] = {}

    def tried(self, partition: int | None, key: bytes | None, value: str) -> int:
        self.sent += 1
        self._open[self.sent] = (None if key is None else key.decode(), value)
        return self.sent

    def ended(self, number: int, metadata: "RecordMetadata | None", error: BaseException | None) -> None:
        key, value = self._open.pop(number)
        if metadata is not None:
            self.acked += 1
            self.say(
                "producer_send_success",
                key=key,
                value=value,
                topic=metadata.topic,
                partition=metadata.partition,
                offset=metadata.offset,
            )
            return
        exception = type(error).__name__
        self.say(
            "producer_send_error", key=key, value=value, topic=self._topic, exception=exception, message=str(error)
        )

    def end(self) -> None:
        seconds = max(self._clock.now() - self._began, 1e-9)
        average = round(self.acked / seconds, 3)
        data = {"sent": self.sent, "acked": self.acked}
        self.say("tool_data", **data, target_throughput=self._throughput, avg_throughput=average)
        self.say("shutdown_complete")


class _ConsumerEvents(_Events):
    def __init__(self, clock: "Clock", verbose: bool) -> None:
        super().__init__(clock)
        self._verbose = verbose

    def assigned(self, partitions: "Sequence[TopicPartition]") -> None:
        self.say("partitions_assigned", partitions=_named(partitions))

    def revoked(self, partitions: "Sequence[TopicPartition]") -> None:
        self.say("partitions_revoked", partitions=_named(partitions))

    def polled(self, began: float, records: "Sequence[ConsumerRecord]") -> None:
        offsets: dict[tuple[str, int], list[int]] = {}
        for record in records:
            offsets.setdefault((record.topic, record.partition), []).append(record.offset)
        partitions = [
            {"topic": t, "partition": p, "count": len(found), "minOffset": found[0], "maxOffset": found[-1]}
            for (t, p), found in offsets.items()
        ]
        self.say("records_consumed", count=len(records), partitions=partitions)
        for record in records if self._verbose else ():
            place = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
            self.say("record_data", key=_text(record.key), value=_text(record.value), **place)

    def processed(self, records: "Sequence[ConsumerRecord]") -> None:
        """Kafka's tool has no event for it."""

    def committed(
        self, offsets: "Mapping[TopicPartition, int]", sent_in: "GroupMetadata", error: BaseException | None
    ) -> None:
        named = [{"topic": tp.topic, "partition": tp.partition, "offset": offset} for tp, offset in offsets.items()]
        failure = {} if error is None else {"error": str(error)}
        self.say("offsets_committed", offsets=named, success=error is None, **failure)


def _named(partitions: "Sequence[TopicPartition]") -> list[dict[str, Any]]:
    return [{"topic": tp.topic, "partition": tp.partition} for tp in partitions]


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="backslashreplace")
