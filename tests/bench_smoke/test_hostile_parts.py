"""HOSTILE without a cluster: its requests, and what it makes of the samples of memory."""

import itertools

import pytest

from bench import hostile_client as client
from bench import hostile_requests as requests
from bench.hostile_memory import LIMIT_BYTES, Look, aligned, judged, rows
from helpers.hostile import METHODS
from tidelog.errors import ErrorCode, TidelogError
from tidelog.wire import messages as m
from tidelog.wire import services as s
from tidelog.wire.codec import decoder, encode

MIB = 1 << 20
ROUND = len(METHODS)


def looks(*sizes: int) -> list[Look]:
    """Two samples before hostile requests, then one each second; in MiB."""
    return [Look(None, 90 * MIB), Look(None, 100 * MIB), *(Look(float(n), size * MIB) for n, size in enumerate(sizes))]


def test_memory_begins_with_the_last_sample_before() -> None:
    memory = judged([*looks(200, 400, 300, 300, 300), Look(None, 120 * MIB)], 2.0)
    assert (memory.start, memory.settled, memory.most) == (100 * MIB, 300 * MIB, 400 * MIB)
    assert (memory.growth, memory.end) == (300 * MIB, 120 * MIB)
    assert (memory.per_minute, memory.grown) == (0.0, 0.0), "only what comes before has grown"


def test_growth_is_that_of_a_straight_line() -> None:
    memory = judged(looks(0, 0, 300, 290, 320, 330), 2.0)
    assert memory.per_minute == pytest.approx(12 * 60 * MIB)
    assert memory.grown == pytest.approx(36 * MIB)


def test_a_single_sample_has_not_grown() -> None:
    assert judged(looks(0, 0, 300), 2.0).grown == 0.0


def test_the_table_of_memory_is_aligned() -> None:
    table = aligned(rows({"broker-0": judged(looks(0, 1000, 300, 301), 2.0)}, 120.0))
    assert table[0].startswith("MiB       start  after 120 s  maximum")
    assert table[1].split() == ["broker-0", "100", "300", "1000", str(100 + (LIMIT_BYTES >> 20)), "+60.00", "301"]
    assert len({len(line) for line in table}) == 1


def test_the_first_error_of_an_answer_counts() -> None:
    good, bad = (
        m.CreatedTopic(name="t", error_code=code, num_partitions=1, replication_factor=1)
        for code in (ErrorCode.NONE, ErrorCode.INVALID_REQUEST)
    )
    assert client.first_error(m.CreateTopicsResponse(topics=(good, bad))) is ErrorCode.INVALID_REQUEST
    assert client.first_error(m.CreateTopicsResponse(topics=(good,))) is ErrorCode.NONE


def test_every_method_is_asked_at_each_kind_of_its_listeners() -> None:
    for endless in (requests.hostile_requests(), requests.harmless_requests()):
        asked = {(each.method.path, each.listener) for each in itertools.islice(endless, 2 * ROUND)}
        assert asked == {(method.path, kind) for method in METHODS for kind in requests.listeners(method)}


def test_harmless_requests_are_small_and_whole() -> None:
    for each in itertools.islice(requests.harmless_requests(), ROUND):
        assert len(each.data) < 1_000
        decoded = decoder(each.method.request)(each.data)
        assert encode(decoded) == each.data, each.method.path


def test_no_hostile_follower_is_a_real_broker() -> None:
    named = set()
    for data in itertools.islice(requests._hostile(s.REPLICA_SERVICE_REPLICA_FETCH), 100):
        try:
            named.add(decoder(m.ReplicaFetchRequest)(data).replica_id)
        except TidelogError:
            continue
    assert requests.NO_BROKER in named and -1 in named and not named & {0, 1, 2}
