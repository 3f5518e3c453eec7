"""The paced load: its pace, its patience, its bounds."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, MutableMapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from helpers.brokers import Brokers, brokers
from helpers.log_events import captured_logs
from tidelog.client.producer import Producer
from tidelog.config import TrafficSettings
from tidelog.errors import TidelogError
from tidelog.ids import Address
from tidelog.runtime.tasks import Supervisor
from tidelog.runtime.traffic_metrics import TrafficMetrics
from tidelog.testing.intercept import Call
from tidelog.traffic import app
from tidelog.traffic.app import Traffic
from tidelog.wire.batch import read_header


@asynccontextmanager
async def running_traffic(
    count: int = 1,
    **settings: Any,
) -> AsyncIterator[tuple[Brokers, Traffic, Callable[[], Counter[str]]]]:
    """A cluster in memory, a traffic process, and what became of its records."""
    cluster, registry = await brokers(count), CollectorRegistry()
    servers = tuple(map(Address.parse, cluster.bootstrap.split(",")))
    metrics = TrafficMetrics(registry)
    traffic = Traffic(
        TrafficSettings(bootstrap_servers=servers, traffic_replication_factor=count, **settings), cluster.ports, metrics
    )
    metrics.watch_ack_gaps(traffic.longest_ack_gaps, loop=None)

    def outcomes() -> Counter[str]:
        found: Counter[str] = Counter()
        for sample in (s for family in registry.collect() for s in family.samples):
            name = sample.name.removeprefix("tidelog_e2e_").removesuffix("_total")
            if sample.name.startswith("tidelog_e2e_") and sample.name.endswith("_total") and sample.value:
                found[sample.labels.get("reason", name)] = int(sample.value)
        return found

    yield cluster, traffic, outcomes
    await traffic.stop()


async def run_for(traffic: Traffic, seconds: float) -> None:
    supervisor = Supervisor()
    supervisor.start("traffic", traffic.run())
    supervisor.start("reader", traffic.read_back())
    supervisor.start("acknowledgements", traffic.watch_acks())
    await asyncio.sleep(seconds)
    await supervisor.stop()
    assert supervisor.failure is None


async def test_the_topic_is_made_and_records_come_at_the_pace() -> None:
    async with running_traffic(traffic_records_per_s=100, traffic_partitions=4, traffic_record_bytes=300) as (
        cluster,
        traffic,
        outcomes,
    ):
        await run_for(traffic, 10.5)
        assert len(cluster.states) == 4
        assert 950 <= outcomes()["acked"] <= 1_060
        assert set(outcomes()) == {"produced", "acked", "received"}
        stored = [v for p in range(4) for v in cluster.values("events", p)]
        assert {len(value or b"") for value in stored} == {300}


async def test_a_record_waits_for_no_other_one() -> None:
    """The cluster in memory answers at once: what a send takes is the probe's own."""
    cluster, registry = await brokers(1), CollectorRegistry()
    servers = tuple(map(Address.parse, cluster.bootstrap.split(",")))
    traffic = Traffic(
        TrafficSettings(bootstrap_servers=servers, traffic_replication_factor=1),
        cluster.ports,
        TrafficMetrics(registry),
    )
    await run_for(traffic, 10.0)
    await traffic.stop()
    name = "tidelog_e2e_produce_seconds"
    took_s, count = (registry.get_sample_value(f"{name}_{what}") or 0.0 for what in ("sum", "count"))
    assert count > 100 and took_s / count < 0.005


async def test_a_topic_that_is_there_is_used() -> None:
    async with running_traffic() as (cluster, traffic, outcomes):
        await cluster.create("events", partitions=1)
        await run_for(traffic, 2.0)
        assert outcomes()["acked"] > 0


async def test_it_waits_for_brokers_that_come_later() -> None:
    async with running_traffic() as (cluster, traffic, outcomes):
        cluster.kill(*cluster.ids)
        asyncio.get_running_loop().call_later(60.0, cluster.launch, *cluster.ids)
        await run_for(traffic, 80.0)
        assert outcomes()["acked"] > 1_000


async def test_it_waits_until_there_are_brokers_enough_for_its_replicas() -> None:
    async with running_traffic(2) as (cluster, traffic, outcomes):
        cluster.kill(2)
        await cluster.settle()
        asyncio.get_running_loop().call_later(5.0, cluster.launch, 2)
        await run_for(traffic, 15.0)
        assert len(cluster.of("CreateTopics")) > 1 and outcomes()["acked"] > 0


async def test_what_waits_for_an_answer_is_bounded_and_the_load_goes_on_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running_traffic() as (cluster, traffic, outcomes):
        monkeypatch.setattr(app, "UNANSWERED_MAX", 200)
        loop = asyncio.get_running_loop()
        loop.call_later(5.0, cluster.kill, *cluster.ids)
        loop.call_later(25.0, cluster.launch, *cluster.ids)
        await run_for(traffic, 60.0)
        found = outcomes()
        assert found["left_out"] > 1_000
        assert found["acked"] > 3_000
        assert found["failed"] == 0


async def test_a_process_without_acknowledgements_is_unwell() -> None:
    async with running_traffic() as (cluster, traffic, _outcomes):
        seen: dict[float, str] = {}
        loop = asyncio.get_running_loop()
        loop.call_later(10.0, cluster.kill, *cluster.ids)
        loop.call_later(60.0, cluster.launch, *cluster.ids)
        for at in (0.0, 9.0, 39.0, 42.0, 70.0):
            loop.call_later(at, lambda at=at: seen.__setitem__(at, traffic.unwell()))
        await run_for(traffic, 75.0)
        assert seen == {
            0.0: "no record was acknowledged yet",
            9.0: "",
            39.0: "",
            42.0: "no record was acknowledged for 30 s",
            70.0: "",
        }


async def test_a_topic_that_may_not_be_is_told() -> None:
    async with running_traffic(traffic_topic="a/b") as (_cluster, traffic, _outcomes):
        with pytest.raises(TidelogError, match="topic name"):
            await traffic.run()


async def test_all_that_was_acknowledged_is_read_back_also_after_brokers_were_away() -> None:
    async with running_traffic() as (cluster, traffic, outcomes):
        loop = asyncio.get_running_loop()
        loop.call_later(5.0, cluster.kill, *cluster.ids)
        loop.call_later(15.0, cluster.launch, *cluster.ids)
        await run_for(traffic, 30.0)
        found = outcomes()
        assert found["received"] > 2_000 and found["acked"] - found["received"] < 50  # those of the last moment
        assert not {"lost", "duplicated", "out_of_order"} & set(found)


async def test_records_of_other_processes_are_none_of_its_own() -> None:
    async with running_traffic() as (cluster, traffic, outcomes):
        await cluster.create("events", partitions=1)
        async with Producer(cluster.bootstrap, ports=cluster.ports) as other:
            loop = asyncio.get_running_loop()
            bodies = (b"", b"no JSON", b"[1]", b'{"n": 1, "run": "another"}', b'{"n": "text"}')
            supervisor = Supervisor()
            loop.call_later(5.0, lambda: supervisor.start("other", send_all(other, bodies)))
            await run_for(traffic, 10.0)
            assert len(cluster.values("events")) == outcomes()["acked"] + len(bodies)
            assert outcomes()["received"] <= outcomes()["acked"]
            assert set(outcomes()) == {"produced", "acked", "received"}
            await supervisor.stop()


async def send_all(producer: Producer, bodies: Sequence[bytes]) -> None:
    for body in bodies:
        await producer.send("events", body)
    await producer.flush()


async def test_an_acknowledged_record_that_is_not_in_the_log_any_more_counts_as_lost() -> None:
    async with running_traffic() as (cluster, traffic, outcomes):
        await cluster.create("events", partitions=1)
        reads, gone = asyncio.Event(), []
        reads.set()

        async def held(call: Call) -> Any:
            if call.method != "Fetch":
                return NotImplemented
            await reads.wait()
            answer = await call.serve()
            (result,) = answer.results
            for batch in gone:
                result = replace(result, records=bytes(result.records).replace(batch, b""))
            return replace(answer, results=(result,))

        def lose() -> None:
            gone.append(cluster.batches("events")[-3])
            reads.set()

        cluster.faults.append(held)
        loop = asyncio.get_running_loop()
        loop.call_later(5.0, reads.clear)
        loop.call_later(7.0, lose)
        await run_for(traffic, 10.0)
        count = read_header(gone[0]).record_count
        assert count > 0 and outcomes()["lost"] == count


def of_acks(said: Sequence[MutableMapping[str, Any]]) -> list[tuple[str, float]]:
    """Lines of the log about acknowledgements, with their seconds."""
    lines = (each for each in said if "acknowledge" in each["event"])
    return [(each["event"], each.get("after_s", each.get("for_s"))) for each in lines]


async def test_a_silence_is_logged_when_it_is_long_and_when_it_ends() -> None:
    async with running_traffic(traffic_records_per_s=20) as (cluster, traffic, _outcomes):
        loop = asyncio.get_running_loop()
        for down, up in ((5.0, 9.0), (15.0, 35.0), (40.0, 50.0)):  # the first is too short
            loop.call_later(down, cluster.kill, *cluster.ids)
            loop.call_later(up, cluster.launch, *cluster.ids)
        with captured_logs() as said:
            await run_for(traffic, 55.0)
    again = "acknowledged again"
    first, second = pytest.approx(20, abs=2), pytest.approx(10, abs=2)
    assert of_acks(said) == [("no acknowledgement", 5), (again, first), ("no acknowledgement", 5), (again, second)]


async def test_a_silence_from_the_start_is_logged() -> None:
    async with running_traffic(traffic_records_per_s=20) as (cluster, traffic, _outcomes):

        async def silent(call: Call) -> Any:
            if call.method == "Produce":
                await asyncio.sleep(1e6)
            return NotImplemented

        cluster.faults.append(silent)
        with captured_logs() as said:
            await run_for(traffic, 8.0)
    assert of_acks(said) == [("no acknowledgement", 5)]


async def test_the_longest_time_without_an_acknowledgement_is_told() -> None:
    async with running_traffic(traffic_records_per_s=20) as (cluster, traffic, _outcomes):
        await cluster.create("events", partitions=1)
        loop = asyncio.get_running_loop()
        loop.call_later(5.0, cluster.kill, *cluster.ids)
        loop.call_later(8.0, cluster.launch, *cluster.ids)
        await run_for(traffic, 12.0)
        assert traffic.longest_ack_gaps() == {0: pytest.approx(3, abs=1)}
        assert traffic.longest_ack_gaps()[0] < 1
