"""The task's side: a range is read whole from whoever leads it, or it is data loss, a bad batch or the last error."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from helpers.driven_brokers import Driven, driven_brokers
from tidelog.client.errors import BadBatchError, ClusterUnreachable
from tidelog.client.records import Record, encode_batch
from tidelog.errors import ErrorCode, TidelogError, TransportError
from tidelog.ids import Address, TopicPartition
from tidelog.pipeline.offsets import DataLossError, OffsetRange
from tidelog.pipeline.range_read import read_range
from tidelog.pipeline.source_options import SourceOptions, Subscribe

T0 = TopicPartition("t", 0)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driven]:
    """Ten batches of ten records in t-0, each fetched alone; the first three are on the disk of broker 1."""
    with driven_brokers(log_flush_interval_ms=1_000) as (cluster, runner):
        monkeypatch.setattr("asyncio.Runner", lambda: runner)
        cluster.create("t", replicas=1)
        for n in range(10):
            if n == 3:
                runner.run(asyncio.sleep(3.0))
            append(cluster, n)
        yield cluster


def append(cluster: Driven, n: int) -> None:
    records = [Record(None, b"%d" % (10 * n + i), [("n", b"%d" % n)], 1000 + n) for i in range(10)]
    cluster.append("t", 0, encode_batch(records))


def delete_before(cluster: Driven, offset: int) -> None:
    cluster.delete_records("t", 0, offset)


def options(cluster: Driven, fail: bool = True, headers: bool = False, **kafka: str) -> SourceOptions:
    return SourceOptions(
        tuple(cluster.addresses.values()),
        Subscribe(("t",)),
        fail_on_data_loss=fail,
        include_headers=headers,
        poll_timeout_ms=800,
        kafka={"max.partition.fetch.bytes": "100", **kafka},
    )


def wanted(start: int, end: int, cluster: Driven | None = None) -> OffsetRange:
    return OffsetRange(T0, start, end, cluster.topic_id("t") if cluster else b"")


def offsets(cluster: Driven, range_: OffsetRange, **how: Any) -> list[int]:
    return [row for part in read_range(options(cluster, **how), range_, cluster.ports) for row in rows(part)]


def rows(part: Any) -> list[int]:
    found: list[int] = part["offset"].to_pylist()
    assert [int(value) for value in part["value"].to_pylist()] == found
    return found


def test_a_range_is_read_whole_and_nothing_else(cluster: Driven) -> None:
    assert offsets(cluster, wanted(15, 73, cluster)) == list(range(15, 73))
    assert offsets(cluster, wanted(0, 100)) == list(range(100))
    (part, *_) = read_range(options(cluster, headers=True), wanted(5, 6), cluster.ports)
    assert part["headers"].to_pylist() == [[{"key": "n", "value": b"0"}]]


def test_brokers_know_the_query_by_its_name(cluster: Driven) -> None:
    offsets(cluster, wanted(0, 5), **{"group.id": "nightly"})
    assert {call.request.client_id for call in cluster.of("Fetch")} == {"nightly"}


def test_a_new_leader_is_followed_in_the_middle(cluster: Driven) -> None:
    cluster.move("t", 0, (1, 2))
    seen: list[int] = []
    for part in read_range(options(cluster), wanted(0, 100), cluster.ports):
        seen += rows(part)
        if len(seen) == 30:
            cluster.kill(1)
    assert seen == list(range(100))


def test_a_log_that_has_moved_past_the_range_is_data_loss(cluster: Driven) -> None:
    delete_before(cluster, 25)
    with pytest.raises(DataLossError, match=r"t-0: offset 20 is not in the log, which holds offsets 25 to 100.*failOn"):
        offsets(cluster, wanted(20, 40))


@pytest.mark.parametrize("log_start, expected", [(25, list(range(25, 40))), (50, [])])
def test_what_is_left_of_a_range_is_read_when_loss_is_no_failure(
    cluster: Driven, log_start: int, expected: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    delete_before(cluster, log_start)
    assert offsets(cluster, wanted(20, 40), fail=False) == expected
    assert "t-0: some of offsets 20 to 40 are gone" in caplog.text


def test_a_log_that_moves_on_while_it_is_read_is_data_loss_too(cluster: Driven) -> None:
    seen: list[int] = []
    with pytest.raises(DataLossError, match="holds offsets 80 to 100"):
        for part in read_range(options(cluster), wanted(0, 100), cluster.ports):
            seen += rows(part)
            delete_before(cluster, 80)
    assert seen == list(range(len(seen)))


def test_an_end_beyond_the_log_is_data_loss_once_it_has_not_come(cluster: Driven) -> None:
    with pytest.raises(DataLossError, match="nothing to read at offset 100, the high watermark is 100"):
        offsets(cluster, wanted(90, 105))
    assert offsets(cluster, wanted(90, 105), fail=False) == list(range(90, 100))


def test_a_start_beyond_the_log_is_data_loss(cluster: Driven) -> None:
    with pytest.raises(DataLossError, match="offset 200 is not in the log"):
        offsets(cluster, wanted(200, 205))
    assert offsets(cluster, wanted(200, 10**9), fail=False) == []


@pytest.mark.parametrize("again", [True, False], ids=["created anew", "deleted"])
def test_another_topic_of_the_same_name_is_data_loss(
    cluster: Driven, again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.client.range_reader._GONE_S", 0.2)
    range_ = wanted(0, 10, cluster)
    cluster.delete("t")
    if again:
        cluster.create("t")
        append(cluster, 0)
    with pytest.raises(DataLossError, match="t-0: the topic was deleted and created anew" if again else "'t' does not"):
        offsets(cluster, range_)
    assert offsets(cluster, range_, fail=False) == []


def test_a_topic_that_is_deleted_while_it_is_read_is_data_loss(
    cluster: Driven, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.client.range_reader._GONE_S", 0.2)
    parts = read_range(options(cluster), wanted(0, 100, cluster), cluster.ports)
    next(parts)
    cluster.delete("t")
    with pytest.raises(DataLossError, match="t-0: the topic was deleted"):
        list(parts)


def test_a_log_that_was_cut_below_what_was_read_is_data_loss(cluster: Driven) -> None:
    parts = read_range(options(cluster), wanted(0, 100), cluster.ports)
    assert [rows(next(parts))[0] for _ in range(5)] == [0, 10, 20, 30, 40]
    cluster.lose_power(1)
    assert cluster.end("t") == 30
    for n in range(3, 10):
        append(cluster, n)
    with pytest.raises(DataLossError, match=r"truncated below position \d+; what was read from offset 30 on"):
        list(parts)


def test_a_damaged_batch_names_its_partition_and_offset(cluster: Driven) -> None:
    batch = cluster.batches("t")[3]
    cluster.damage(batch, batch[:-1] + bytes([batch[-1] ^ 1]))
    seen: list[int] = []
    with pytest.raises(BadBatchError, match="t-0: bad batch at offset 30: crc"):
        for part in read_range(options(cluster), wanted(0, 100), cluster.ports):
            seen += rows(part)
    assert seen == list(range(30))


def test_a_cluster_that_is_gone_is_said_to_be_gone(cluster: Driven) -> None:
    cluster.kill(*cluster.ids)
    with pytest.raises(ClusterUnreachable, match="nothing answers at b"):
        offsets(cluster, wanted(0, 100))


def test_a_leader_that_stays_away_ends_the_task_after_the_poll_timeout(cluster: Driven) -> None:
    parts = read_range(options(cluster), wanted(0, 100), cluster.ports)
    next(parts)
    cluster.kill(*cluster.ids)
    with pytest.raises((TidelogError, TransportError)) as raised:
        list(parts)
    assert not isinstance(raised.value, DataLossError)


def test_loss_is_no_matter_of_transport() -> None:
    """What may come back later is never taken for lost."""
    from tidelog.pipeline.range_read import _is_loss

    for code in (ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT):
        assert not _is_loss(TidelogError("x", code))
    assert not _is_loss(ClusterUnreachable({Address("a", 1): "down"}))
