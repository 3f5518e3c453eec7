"""The producer against brokers in memory: order, retries, unknown outcomes, limits."""

import asyncio
import itertools
from typing import Any

import pytest

from helpers.brokers import Brokers, brokers, forgotten_meanwhile, no_tasks_left, produce_result
from helpers.logs import contents
from helpers.requirements import requirement
from tidelog.client.errors import ClientClosed, DeliveryError
from tidelog.client.producer import Producer
from tidelog.client.records import Record, encode_batch
from tidelog.errors import ErrorCode, TidelogError, TransportError
from tidelog.testing.intercept import Call
from tidelog.wire import messages as m
from tidelog.wire.batch import read_header
from unit.client.clients import Flights, producer, values


@requirement("A produce request is appended in order and queued until commit")
async def test_records_of_a_partition_are_stored_in_the_order_of_their_sends() -> None:
    cluster = await brokers()
    await cluster.create("t", partitions=2)
    flights = Flights(cluster)
    async with no_tasks_left(), producer(cluster, batch_bytes=300, enable_idempotence=False) as p:
        acks = [await p.send("t", v, partition=0) for v in values(200)]
        done = await asyncio.gather(*acks)
    assert cluster.values("t", 0) == values(200)
    assert [d.offset for d in done] == list(range(200))
    assert len(cluster.batches("t", 0)) > 5
    assert flights.most == 1


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
    ],
)
async def test_a_refused_batch_is_tried_again_before_the_ones_behind_it(code: ErrorCode) -> None:
    cluster = await brokers()
    await cluster.create("t")
    async with producer(cluster, batch_bytes=200) as p:
        cluster.refuse_produce(code, times=3)
        for v in values(100):
            await p.send("t", v)
        await p.flush()
    assert cluster.values("t") == values(100)


async def test_batches_for_one_leader_leave_in_one_request() -> None:
    cluster = await brokers(1)
    await cluster.create("t", partitions=12)
    async with producer(cluster, linger_ms=5) as p:
        for i in range(120):
            await p.send("t", b"v", partition=i % 12)
        await p.flush()
    assert len(cluster.of("Produce")) == 1
    assert len(cluster.of("Produce")[0].request.partitions) == 12


@requirement("A killed leader loses no acknowledged record")
@requirement("Connection resets never duplicate a record of an idempotent producer")
async def test_without_idempotence_a_lost_answer_is_retried_and_may_store_twice_but_never_reorders() -> None:
    cluster = await brokers()
    await cluster.create("t")
    async with producer(cluster, enable_idempotence=False, batch_bytes=200) as p:
        cluster.lose_answer("Produce", times=2)
        acks = [await p.send("t", v) for v in values(50)]
        told = await asyncio.gather(*acks)
    assert (told[0].attempts, told[-1].attempts) == (3, 1)
    stored = [v for v in cluster.values("t")]
    assert sorted(set(stored), key=lambda v: int(v or b"-1")) == values(50)
    assert len(stored) > 50
    # each batch as a whole may be there several times in a row; nothing of a later batch comes before
    assert [int(v or b"-1") for v in dict.fromkeys(stored)] == list(range(50))


async def test_the_outcome_is_known_after_a_refusal_before_the_append() -> None:
    cluster = await brokers()
    await cluster.create("t")
    async with producer(cluster, delivery_timeout_ms=500) as p:
        cluster.refuse_produce(ErrorCode.NOT_ENOUGH_REPLICAS, times=100)
        acks = [await p.send("t", value) for value in (b"v", b"w")]
        with pytest.raises(DeliveryError, match=r"t-0: scripted .*; it was not written") as caught:
            await acks[0]
        assert acks[1].exception() is caught.value, "those of a batch end alike"
        assert caught.value.outcome_known
        assert caught.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert cluster.values("t") == []


@requirement("Connection resets never duplicate a record of an idempotent producer")
@requirement("Clients cut from all brokers get unknown outcomes")
@pytest.mark.parametrize("code", [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.NOT_LEADER_OR_FOLLOWER])
async def test_the_outcome_is_unknown_once_one_attempt_may_have_appended(code: ErrorCode) -> None:
    cluster = await brokers()
    await cluster.create("t")
    async with producer(cluster, delivery_timeout_ms=500) as p:
        cluster.refuse_produce(code, append=True)
        cluster.refuse_produce(ErrorCode.NOT_ENOUGH_REPLICAS, times=100)  # a certain "no" afterwards changes nothing
        with pytest.raises(DeliveryError, match="it may have been written") as caught:
            await (await p.send("t", b"v"))
        assert not caught.value.outcome_known
    assert cluster.values("t") == [b"v"]


@pytest.mark.parametrize("code", [ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_RECORD, ErrorCode.INVALID_REQUIRED_ACKS])
async def test_what_cannot_succeed_is_not_retried(code: ErrorCode) -> None:
    cluster = await brokers()
    await cluster.create("t")
    async with producer(cluster) as p:
        cluster.refuse_produce(code)
        with pytest.raises(DeliveryError) as caught:
            await (await p.send("t", b"v"))
        assert caught.value.code is code
        assert len(cluster.of("Produce")) == 1
        await (await p.send("t", b"w"))  # the producer lives on
    assert cluster.values("t") == [b"w"]


@requirement("A leader crash before the append makes the client resend")
@requirement("A leader killed before the append costs one retry")
async def test_a_killed_leader_costs_no_more_than_its_election() -> None:
    cluster = await brokers()
    await cluster.create("t")
    async with producer(cluster) as p:
        await (await p.send("t", b"before"))
        cluster.kill_unnoticed(1)
        ack = await p.send("t", b"during")
        began = cluster.clock.now()
        await cluster.clock.sleep(0.3)
        assert not ack.done()
        await cluster.notice(1)
        await ack
        assert cluster.clock.now() - began < 0.3 + 0.15
    assert cluster.values("t") == [b"before", b"during"]


@requirement("An asynchronous write is acknowledged after the local append")
async def test_what_a_leader_alone_has_acknowledged_is_lost_with_it() -> None:
    cluster = await brokers()
    await cluster.create("t")
    for follower in (2, 3):
        cluster.part(1, follower)
    async with producer(cluster, acks=1) as p:
        await (await p.send("t", b"lost"))
        cluster.kill(1)
        await cluster.until(lambda: cluster.leader("t") not in (-1, 1), "another broker leads")
        await (await p.send("t", b"kept"))
    await cluster.restart(1)
    assert cluster.values("t") == [b"kept"]
    assert len({contents(cluster.host("t", 0, broker).log) for broker in cluster.ids}) == 1, "it is cut off"


async def test_a_leader_that_leaves_the_metadata_before_its_request_is_sent_costs_a_retry() -> None:
    """Its session has ended, and the election comes later: the brokers name it as leader and not among themselves."""

    cluster = await brokers()
    await cluster.create("t")
    async with producer(cluster) as p:
        await (await p.send("t", b"before"))
        forgotten_meanwhile(p, 1, "produce-1")
        await (await p.send("t", b"during"))
        await (await p.send("t", b"after"))
    assert cluster.values("t") == [b"before", b"during", b"after"]


@requirement("A leader crash before the append makes the client resend")
@pytest.mark.parametrize("seed", range(8))
async def test_a_leader_that_is_found_after_a_long_time_gets_its_batches_at_once(seed: int) -> None:
    cluster = await brokers(seed=seed, session_ms=60_000)
    await cluster.create("t")
    async with producer(cluster) as p:
        cluster.kill_unnoticed(1)
        ack = await p.send("t", b"x")
        await cluster.clock.sleep(20)
        await cluster.notice(1)
        began = cluster.clock.now()
        await ack
        # the distance of two looks at the metadata, not the second that the batch would pause
        assert cluster.clock.now() - began < 0.51


async def test_the_leader_hint_saves_the_metadata_request() -> None:
    cluster = await brokers()
    await cluster.create("t")
    async with producer(cluster) as p:
        await (await p.send("t", b"a"))
        asked = len(cluster.of("ClusterMetadata"))
        await cluster.elect("t", 0, 3)
        began = cluster.clock.now()
        await (await p.send("t", b"b"))
        assert cluster.clock.now() - began < 0.02
        assert len(cluster.of("ClusterMetadata")) == asked
    assert cluster.values("t") == [b"a", b"b"]


@requirement("A leader killed before the append costs one retry")
async def test_a_request_that_was_given_up_is_fenced_when_it_arrives_after_its_retry() -> None:
    # Its leader is deposed, and elected again later: the old request then reaches it with an old epoch.
    cluster = await brokers()
    await cluster.create("t")

    async def held(_: Call) -> Any:
        await cluster.clock.sleep(3600)

    async with producer(cluster, request_timeout_ms=200) as p:
        cluster.once("Produce", held)
        ack = await p.send("t", b"once")
        await cluster.clock.sleep(0.1)
        late = cluster.of("Produce")[0]
        await cluster.elect("t", 0, 2)
        await ack
        await cluster.elect("t", 0, 1)
        answer = await late.serve()
        assert answer.results[0].error_code is ErrorCode.FENCED_LEADER_EPOCH
    assert cluster.values("t") == [b"once"]


async def test_a_record_over_the_limit_is_refused_at_send_and_names_the_limit() -> None:
    cluster = await brokers()
    await cluster.create("t")
    async with producer(cluster, record_bytes_max=1000) as p:
        with pytest.raises(TidelogError, match="record_bytes_max is 1000") as caught:
            await p.send("t", b"x" * 1000)
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
        await (await p.send("t", b"x" * 800))
    assert cluster.values("t") == [b"x" * 800]


async def test_a_batch_that_the_topic_finds_too_large_is_split() -> None:
    cluster = await brokers()
    await cluster.create("t", max_message_bytes="400")
    async with producer(cluster, compression="gzip") as p:
        acks = [await p.send("t", b"%03d" % i * 20, key=b"k", headers=[("h", b"x")]) for i in range(20)]
        ack_big = await p.send("t", cluster.rand.randbytes(900), key=b"k")
        done = await asyncio.gather(*acks)
        with pytest.raises(DeliveryError, match=r"max\.message\.bytes is 400 .*; it was not written"):
            await ack_big
    assert cluster.values("t") == [b"%03d" % i * 20 for i in range(20)]
    assert [d.offset for d in done] == list(range(20))


async def test_a_full_buffer_holds_back_its_senders() -> None:
    cluster = await brokers()
    await cluster.create("t")
    async with producer(cluster, buffer_bytes=10_000, batch_bytes=500, max_block_ms=400) as p:
        cluster.pause(1)
        with pytest.raises(TidelogError, match="stayed full for max_block_ms = 400"):
            for _ in range(100):
                await p.send("t", b"x" * 100)
        assert p._accumulator.buffered_bytes < 12_000
        cluster.resume(1)
        await p.flush()
        assert p._accumulator.buffered_bytes == 0
        for _ in range(100):
            await p.send("t", b"x" * 100)
        await p.flush()
    assert len(cluster.values("t")) > 100


async def test_linger_gathers_and_flush_does_not_wait_for_it() -> None:
    cluster = await brokers()
    await cluster.create("t")
    async with producer(cluster, linger_ms=1000) as p:
        began = cluster.clock.now()
        await p.send("t", b"a")
        await cluster.clock.sleep(0.5)
        await p.send("t", b"b")
        assert cluster.of("Produce") == []
        await cluster.clock.sleep(0.6)
        assert cluster.values("t") == [b"a", b"b"]
        assert len(cluster.of("Produce")) == 1
        await p.send("t", b"c")
        await p.flush()
        assert cluster.clock.now() - began < 1.2


async def test_null_keys_stay_on_a_partition_for_a_batch_and_then_move() -> None:
    cluster = await brokers(1)
    await cluster.create("t", partitions=6)
    async with producer(cluster, batch_bytes=1000, linger_ms=50) as p:
        acks = [await p.send("t", b"x" * 100) for _ in range(600)]
        used = [a.partition for a in await asyncio.gather(*acks)]
    runs = 1 + sum(a != b for a, b in itertools.pairwise(used))
    assert set(used) == set(range(6))
    assert 600 / runs > 5


async def test_keys_go_where_kafka_puts_them() -> None:
    cluster = await brokers()
    await cluster.create("t", partitions=12)
    async with producer(cluster) as p:
        done = [await (await p.send("t", b"v", key=key)) for key in (b"21", b"foobar", b"abc")]
    # toPositive(murmur2(key)) % 12 with the vectors of Kafka's UtilsTest
    expected = [(h & 0x7FFFFFFF) % 12 for h in (-973932308, -790332482, 479470107)]
    assert [d.partition for d in done] == expected


async def test_partitions_without_a_leader_get_no_null_keys_and_keep_what_is_theirs() -> None:
    cluster = await brokers()
    await cluster.create("t", partitions=3, replicas=1)
    cluster.kill(2)
    await cluster.settle()
    async with producer(cluster) as p:
        acks = [await p.send("t", b"x") for _ in range(30)]
        assert 1 not in {(await a).partition for a in acks}
        waiting = await p.send("t", b"y", partition=1)
        await cluster.clock.sleep(1)
        assert not waiting.done()
        await cluster.restart(2)
        assert (await waiting).offset == 0


async def test_delivery_timeout_ends_what_has_no_leader() -> None:
    cluster = await brokers()
    await cluster.create("t", replicas=1)
    cluster.kill(1)
    await cluster.settle()
    async with producer(cluster, delivery_timeout_ms=700) as p:
        began = cluster.clock.now()
        with pytest.raises(DeliveryError, match=r"delivery_timeout_ms passed.*it was not written") as caught:
            await (await p.send("t", b"x"))
        assert 0.7 <= cluster.clock.now() - began < 0.8
        assert caught.value.outcome_known


async def test_a_topic_that_does_not_exist_is_named() -> None:
    cluster = await brokers()
    async with producer(cluster, max_block_ms=300) as p:
        with pytest.raises(TidelogError, match=r"topic 'nope' does not exist; create it with `tidelog topics create`"):
            await p.send("nope", b"x")
        await cluster.create("t", partitions=2)
        with pytest.raises(TidelogError, match="partitions 0 to 1, partition 7 does not exist"):
            await p.send("t", b"x", partition=7)
        with pytest.raises(TidelogError, match="partition -1 does not exist"):
            await p.send("t", b"x", partition=-1)


async def test_a_topic_that_is_being_created_is_waited_for() -> None:
    cluster = await brokers()
    async with producer(cluster) as p:
        sending = asyncio.ensure_future(p.send("late", b"x"))
        await cluster.clock.sleep(0.4)
        await cluster.create("late")
        await (await sending)
    assert cluster.values("late") == [b"x"]


@pytest.mark.parametrize(
    "bad", [{"value": "text"}, {"value": b"v", "key": 7}, {"value": b"v", "headers": [("h", 5)]}, {"value": 1.5}]
)
async def test_only_bytes_are_records(bad: dict[str, Any]) -> None:
    cluster = await brokers()
    await cluster.create("t")
    async with producer(cluster) as p:
        with pytest.raises(TypeError):
            await p.send("t", **bad)
        await (await p.send("t", b"fine"))
    assert cluster.values("t") == [b"fine"]


async def test_null_and_empty_are_different_and_headers_and_timestamps_arrive() -> None:
    cluster = await brokers()
    await cluster.create("t")
    async with producer(cluster, linger_ms=1) as p:
        await p.send("t", None, key=b"k")
        await p.send("t", b"", key=b"", headers=[("a", None), ("b", b"\xff\x00")], timestamp_ms=123)
        await p.flush()
    from tidelog.client.records import decode_batch
    from tidelog.ids import TopicPartition

    batch = cluster.batches("t")[0]
    first, second = decode_batch(TopicPartition("t", 0), batch, read_header(batch))
    assert (first.key, first.value) == (b"k", None)
    assert (second.key, second.value, second.timestamp_ms) == (b"", b"", 123)
    assert second.headers == [("a", None), ("b", b"\xff\x00")]


async def test_pre_encoded_batches_pass_through_unchanged() -> None:
    cluster = await brokers()
    await cluster.create("t", partitions=2)
    batch = encode_batch(Record(b"k", b"%d" % i, (), 5) for i in range(10))
    async with producer(cluster, enable_idempotence=False) as p:
        acks = [await p.produce_encoded("t", 1, batch) for _ in range(5)]
        assert [a.offset for a in await asyncio.gather(*acks)] == [0, 10, 20, 30, 40]
        with pytest.raises(ValueError, match="a batch has at least 61"):
            await p.produce_encoded("t", 1, b"short")
    assert cluster.batches("t", 1)[3][16:] == batch[16:]


async def test_acks_0_waits_for_no_position() -> None:
    cluster = await brokers()
    await cluster.create("t")

    async def at_once(call: Call) -> m.ProduceResponse:
        assert call.request.acks == 0
        return m.ProduceResponse(results=(produce_result("t", 0),))

    async with producer(cluster, acks=0) as p:
        cluster.once("Produce", at_once)
        assert (await (await p.send("t", b"x"))).offset == -1


async def test_stop_without_flush_fails_what_is_left_and_knows_nothing_of_what_is_under_way() -> None:
    cluster = await brokers()
    await cluster.create("t", partitions=2)
    p = producer(cluster)
    await p.start()
    await (await p.send("t", b"other", partition=1))  # it has its producer id
    cluster.pause(1)
    flying = await p.send("t", b"flying", partition=0)
    await cluster.clock.sleep(0.01)
    queued = await p.send("t", b"queued", partition=0)
    await p.stop(flush=False)
    for ack, known in ((flying, False), (queued, True)):
        error = ack.exception()
        assert isinstance(error, DeliveryError) and error.outcome_known is known
    with pytest.raises(ClientClosed):
        await p.send("t", b"late")


async def test_flush_and_stop_end_while_another_task_sends() -> None:
    cluster = await brokers()
    await cluster.create("t")
    acks = []

    async def send_on() -> None:
        while True:
            acks.append(await p.send("t", b"v"))

    async with producer(cluster, buffer_bytes=20_000) as p:
        sending = asyncio.create_task(send_on())
        first = await p.send("t", b"first")
        await p.flush()
        assert first.done()
        await p.stop()
    with pytest.raises(ClientClosed):
        await sending
    assert len(acks) > 100
    assert sorted(ack.result().offset for ack in [first, *acks]) == list(range(len(acks) + 1))


async def test_an_answer_without_the_partition_is_an_unknown_outcome() -> None:
    cluster = await brokers()
    await cluster.create("t")

    async def empty(call: Call) -> m.ProduceResponse:
        return m.ProduceResponse(results=())

    async with producer(cluster, delivery_timeout_ms=200) as p:
        for _ in range(50):
            cluster.once("Produce", empty)
        with pytest.raises(DeliveryError) as caught:
            await (await p.send("t", b"x"))
        assert not caught.value.outcome_known


async def test_a_call_that_can_never_work_fails_at_once() -> None:
    cluster = await brokers()
    await cluster.create("t")

    async def refuse(call: Call) -> Any:
        raise TransportError("RESOURCE_EXHAUSTED", "message larger than max")

    async with producer(cluster) as p:
        cluster.once("Produce", refuse)
        with pytest.raises(DeliveryError, match="RESOURCE_EXHAUSTED"):
            await (await p.send("t", b"x"))


@pytest.mark.parametrize("options", [{"acks": 2}, {"acks": "some"}, {"compression": "rar"}])
def test_bad_options_are_refused_by_name(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=str(next(iter(options.values())))):
        producer(Brokers(), **options)


def test_an_empty_or_bad_bootstrap_is_refused() -> None:
    for bad, said in (("", "bootstrap is empty"), ("nohost", "not host:port"), ("h:99999", "not host:port")):
        with pytest.raises(ValueError, match=said):
            Producer(bad, ports=Brokers().ports)
