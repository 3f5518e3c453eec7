"""The blocking facades, over real gRPC to brokers in memory."""

import asyncio
import concurrent.futures
import gc
import os
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from helpers.batches import batch
from helpers.driven_brokers import Driven, serve_over_grpc
from tidelog.client.errors import ClientClosed, DeliveryError
from tidelog.client.sync import Acked, SyncAdmin, SyncConsumer, SyncProducer, _LoopThread, _Unseen
from tidelog.errors import TidelogError
from tidelog.ids import TopicPartition
from tidelog.testing.clock import ManualClock
from tidelog.wire.batch import iter_batches

T0 = TopicPartition("t", 0)


def loop_threads() -> int:
    """The clients' own; gRPC starts and ends its poller in its own time."""
    return sum(thread.name == "tidelog-client" for thread in threading.enumerate())


@pytest.fixture
def cluster() -> Iterator[Driven]:
    thread = _LoopThread()
    cluster = thread.call(serve_over_grpc())
    yield Driven(cluster, thread.call)
    thread.call(cluster.stop())
    thread.close()


def test_records_make_the_round_trip(cluster: Driven) -> None:
    with SyncAdmin(cluster.bootstrap) as admin:
        admin.create_topic("t", 3)
        assert admin.list_topics() == ["t"]
        assert admin.wait_until_led("t", in_sync=True).name == "t"
    with SyncProducer(cluster.bootstrap, batch_bytes=500) as producer:
        acks = [producer.send("t", b"%d" % i, partition=0) for i in range(2000)]
        producer.flush()
        assert [ack.result(5).offset for ack in acks] == list(range(2000))
    with SyncConsumer(cluster.bootstrap) as consumer:
        consumer.assign([T0])
        assert consumer.end_offsets([T0]) == {T0: 2000}
        got: list[bytes | None] = []
        while len(got) < 2000:
            got.extend(r.value for r in consumer.poll(timeout_s=5))
        assert got == [b"%d" % i for i in range(2000)]
        ends = [h.end_offset for chunk in consumer.fetch_batches("t", 0, 5, 1000) for _, h in iter_batches(chunk)]
        assert ends[-1] >= 1000
        assert ends == sorted(ends)


def test_positions_are_set_and_read(cluster: Driven) -> None:
    cluster.create("t")
    with SyncProducer(cluster.bootstrap) as producer:
        assert producer.partitions_of("t") == 1
        for i in range(10):
            producer.send("t", b"%d" % i)
    with SyncConsumer(cluster.bootstrap) as consumer:
        consumer.assign_topics("t")
        assert consumer.assignment == [T0] and consumer.owns(T0)
        consumer.seek_to_end(T0)
        assert consumer.position(T0) == 10
        consumer.seek_to_beginning(T0)
        assert [record.value for record in consumer.poll(1, timeout_s=5)] == [b"0"]
        assert consumer.high_watermark(T0) == 10
        consumer.seek(T0, 7)
        consumer.pause(T0)
        assert consumer.paused == [T0] and consumer.poll(timeout_s=0) == []
        consumer.resume(T0)
        assert consumer.paused == []
        assert next(consumer).value == b"7"


def test_a_loop_that_is_left_skips_no_record(cluster: Driven) -> None:
    cluster.create("t")
    with SyncProducer(cluster.bootstrap) as producer:
        for _ in range(50):
            producer.send("t", b"v")
    with SyncConsumer(cluster.bootstrap) as consumer:
        consumer.assign([T0])
        seen = []
        for _ in range(3):
            for record in consumer:
                seen.append(record.offset)
                if len(seen) % 10 == 0:
                    break
        assert seen == list(range(30))
        assert consumer.position(T0) == 30


def test_flush_and_close_end_while_other_threads_send(cluster: Driven) -> None:
    cluster.create("t")
    acks: list[Acked] = []
    under_way = threading.Barrier(3)

    def send_on() -> None:
        under_way.wait()
        with suppress(ClientClosed):
            while True:
                acks.append(producer.send("t", b"v"))

    with SyncProducer(cluster.bootstrap) as producer:
        senders = [threading.Thread(target=send_on) for _ in range(2)]
        for sender in senders:
            sender.start()
        under_way.wait()
        first = producer.send("t", b"first")
        producer.flush()
        assert first.done()
    for sender in senders:
        sender.join()
    assert sorted(ack.result(0).offset for ack in [first, *acks]) == list(range(len(acks) + 1))


@pytest.mark.parametrize("size", [1, 100_000])
def test_a_buffer_that_is_full_holds_back_and_then_refuses(cluster: Driven, size: int) -> None:
    cluster.create("t", replicas=1)
    cluster.kill(1)
    cluster.notice(1)
    tracemalloc.start()
    try:
        with SyncProducer(cluster.bootstrap, buffer_bytes=1 << 20, max_block_ms=100) as producer:
            before, _ = tracemalloc.get_traced_memory()
            acks = []
            with pytest.raises(TidelogError, match="stayed full for max_block_ms = 100"):
                while True:
                    acks.append(producer.send("t", bytes(size)))
            held = tracemalloc.get_traced_memory()[0] - before
            assert 1 << 20 <= producer.held_bytes < (1 << 20) + size + 3000
            assert 0.6 < producer.held_bytes / held < 1.3
            cluster.restart(1)
            producer.flush()
            assert [ack.result(0).offset for ack in acks] == list(range(len(acks)))
            assert producer.held_bytes == 0
    finally:
        tracemalloc.stop()


def test_what_the_cluster_refuses_is_in_the_future(cluster: Driven) -> None:
    cluster.create("t", replicas=1)
    with SyncProducer(cluster.bootstrap, delivery_timeout_ms=300, max_block_ms=300) as producer:
        with pytest.raises(TidelogError, match="does not exist"):
            producer.send("none", b"v").result(5)
        cluster.kill(1)
        with pytest.raises(DeliveryError):
            producer.send("t", b"v").result(5)


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"topic": 5}, TypeError),
        ({"value": "text"}, TypeError),
        ({"value": 5}, TypeError),
        ({"key": "text"}, TypeError),
        ({"headers": [(None, b"v")]}, TypeError),
        ({"headers": [("name", "text")]}, TypeError),
        ({"partition": -1}, TidelogError),
        ({"partition": "0"}, TypeError),
        ({"timestamp_ms": 2**70}, ValueError),
        ({"timestamp_ms": -1}, ValueError),
        ({"value": b"x" * 600}, TidelogError),
    ],
)
def test_what_is_wrong_with_a_record_is_raised_by_send(
    cluster: Driven, options: dict[str, Any], kind: type[Exception]
) -> None:
    cluster.create("t")
    with SyncProducer(cluster.bootstrap, record_bytes_max=500) as producer:
        with pytest.raises(kind):
            producer.send(**{"topic": "t", "value": b"v", **options})
        assert producer.send("t", b"good").result(5).offset == 0


def test_a_future_that_was_cancelled_holds_up_none_of_those_behind_it(cluster: Driven) -> None:
    """As `asyncio.wait_for` does with one that it wraps."""
    cluster.create("t")
    with SyncProducer(cluster.bootstrap) as producer:
        may_go_on = threading.Event()
        producer._thread.loop.call_soon_threadsafe(may_go_on.wait)
        cancelled = producer.send("t", b"not sent")
        assert cancelled.cancel()
        may_go_on.set()
        assert producer.send("t", b"good").result(5).offset == 0


def test_a_client_refuses_to_be_used_after_a_fork(cluster: Driven) -> None:
    # No real fork: that of a process with threads is itself what must not be done.
    with SyncAdmin(cluster.bootstrap) as admin:
        admin._thread._process = os.getpid() + 1
        with pytest.raises(RuntimeError, match="spawn"):
            admin.list_topics()
        admin._thread._process = os.getpid()


@pytest.mark.parametrize(("error", "sent"), [(ZeroDivisionError, True), (KeyboardInterrupt, False)])
def test_a_block_that_raises_flushes_unless_interrupted(
    cluster: Driven, error: type[BaseException], sent: bool
) -> None:
    cluster.create("t")
    with pytest.raises(error), SyncProducer(cluster.bootstrap, linger_ms=100_000) as producer:
        acks = [producer.send("t", b"v") for _ in range(100)]
        raise error
    assert all(ack.done() for ack in acks)
    assert len(cluster.values("t")) == (100 if sent else 0)
    with pytest.raises(ClientClosed):
        producer.send("t", b"v")


def test_all_clients_share_one_thread(cluster: Driven) -> None:
    cluster.create("t")
    others = loop_threads()
    with SyncAdmin(cluster.bootstrap), SyncProducer(cluster.bootstrap), SyncConsumer(cluster.bootstrap):
        with pytest.raises(TidelogError, match=r"nothing answers at 127\.0\.0\.1:1"):
            SyncAdmin("127.0.0.1:1", request_timeout_ms=300)
        assert loop_threads() <= others + 1


CONSUMER_CALLS: dict[str, Callable[[SyncConsumer], object]] = {
    "poll": lambda c: c.poll(),
    "next": next,
    "assign": lambda c: c.assign([T0]),
    "seek": lambda c: c.seek(T0, 0),
    "position": lambda c: c.position(T0),
    "partitions_of": lambda c: c.partitions_of("t"),
    "end_offsets": lambda c: c.end_offsets([T0]),
    "fetch_batches": lambda c: next(c.fetch_batches("t", 0, 0, 1)),
}


def test_calls_after_close_raise_one_error(cluster: Driven) -> None:
    cluster.create("t")
    admin, consumer, producer = (kind(cluster.bootstrap) for kind in (SyncAdmin, SyncConsumer, SyncProducer))
    consumer.assign([T0])
    sent = producer.send("t", b"v")
    for client in (admin, consumer, producer):
        client.close()
        client.close()
    assert sent.result(0).offset == 0
    for call in CONSUMER_CALLS.values():
        with pytest.raises(ClientClosed):
            call(consumer)
    for _ in range(2):
        with pytest.raises(ClientClosed):
            producer.send("t", b"v")
        with pytest.raises(ClientClosed):
            producer.flush()
    for ask in (admin.list_topics, admin.groups.listing, lambda: admin.create_topic("u")):
        with pytest.raises(ClientClosed):
            ask()


def test_loops_over_a_consumer_end_when_it_is_closed(cluster: Driven) -> None:
    cluster.create("t")
    consumer = SyncConsumer(cluster.bootstrap)
    consumer.assign([T0])
    ended = []

    def read_on(at_once: bool) -> None:
        under_way.wait()
        with pytest.raises(ClientClosed):
            while True:
                consumer.poll(timeout_s=60) if at_once else next(consumer)
        ended.append(at_once)

    under_way = threading.Barrier(4)
    readers = [threading.Thread(target=read_on, args=(at_once,)) for at_once in (True, False, False)]
    closers = [threading.Thread(target=consumer.close) for _ in range(2)]
    for thread in readers:
        thread.start()
    under_way.wait()
    for thread in closers:
        thread.start()
    for thread in (*readers, *closers):
        thread.join()
    assert sorted(ended) == [False, False, True]


def test_a_callback_of_a_future_is_told_not_to_wait(cluster: Driven) -> None:
    cluster.create("t")
    said: concurrent.futures.Future[Exception | None] = concurrent.futures.Future()

    def callback(_: object) -> None:
        try:
            producer.flush()
        except RuntimeError as error:
            said.set_result(error)

    with SyncProducer(cluster.bootstrap) as producer:
        producer.send("t", b"v").add_done_callback(callback)
        assert "would wait for the callback" in str(said.result(10))


def test_groups_are_administered(cluster: Driven) -> None:
    cluster.create("t")
    cluster.append("t", 0, batch(*[b"v"] * 10))
    cluster.create_group("g", {T0: 5})
    cluster.join("busy", "x", "t")
    with SyncAdmin(cluster.bootstrap) as admin:
        assert [g.group_id for g in admin.groups.listing().groups] == ["busy", "g"]
        assert [g.group_id for g in admin.groups.listing(["Stable"]).groups] == ["busy"]
        assert admin.groups.describe_one("g").coordinator_id == cluster.coordinator("g")
        assert [member.consumer_id for member in admin.groups.members("busy")] == ["x"]
        assert admin.groups.committed("g")[T0].offset == 5
        admin.groups.alter_offsets("g", {T0: 7})
        assert admin.groups.committed("g", [T0])[T0].offset == 7
        admin.groups.delete("g")
        with pytest.raises(TidelogError, match="group 'g' does not exist"):
            admin.groups.describe_one("g")


def test_a_wake_up_that_another_loop_took_is_no_error_and_others_are(caplog: pytest.LogCaptureFixture) -> None:
    """gRPC's completion queue raises it in a callback of the loop; the caller could do nothing about it."""

    def fail(error: Exception) -> None:
        raise error

    thread = _LoopThread()
    for error in (BlockingIOError(11, "Resource temporarily unavailable"), ValueError("a real one")):
        thread.loop.call_soon_threadsafe(fail, error)
    thread.call(asyncio.sleep(0))
    thread.close()
    assert "a real one" in caplog.text and "temporarily" not in caplog.text


def test_a_failure_that_is_not_looked_at_is_logged(cluster: Driven, caplog: pytest.LogCaptureFixture) -> None:
    cluster.create("t", replicas=1)
    cluster.kill(1)
    cluster.notice(1)
    with SyncProducer(cluster.bootstrap, delivery_timeout_ms=100) as producer:
        seen = producer.send("t", b"v")
        assert isinstance(seen.exception(10), DeliveryError)
        del seen
        assert "not looked at" not in caplog.text
        for _ in range(20):
            producer.send("t", b"v")
        producer.flush()
    gc.collect()
    assert caplog.text.count("1 records failed whose futures were not looked at; the last: t-0") == 1
    assert "19 records failed" in caplog.text


def test_failures_not_looked_at_are_counted_by_interval(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    unseen = _Unseen(clock.now)
    for wait_s in (0.0, 1.0, 1.0, 10.0, 1.0):
        clock.advance(wait_s)
        unseen.add(ValueError("why"))
    unseen.tell()
    assert [r.getMessage().partition(" ")[0] for r in caplog.records] == ["1", "3", "1"]
