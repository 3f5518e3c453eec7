"""When a broken stream makes a suspect, and when it does not (design 3, Failure detection)."""

import asyncio
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest

from helpers.requirements import requirement
from tidelog.controller.events import BrokerAnswered, FailedReplica, StreamBroken, StreamOpened, Suspected
from tidelog.controller.liveness import FRESH_S, LivenessWatch
from tidelog.controller.model import Broker
from tidelog.errors import ErrorCode, TransportError
from tidelog.ids import Address, BrokerId, TopicPartition
from tidelog.ports.net import Probe
from tidelog.runtime.tasks import Supervisor
from tidelog.testing import loop as sim
from tidelog.testing.clock import SimClock
from tidelog.wire import messages as m

INTERNAL = m.Listener(name="INTERNAL", host="b1", port=9092)


class FakeStream:
    """Answers the first ping as a life of broker 1, and breaks after `holds_s`."""

    def __init__(self, epoch: int | None, holds_s: float, failed: tuple[m.PartitionResult, ...] = ()) -> None:
        self._answers = [] if epoch is None else [m.LivenessPong(broker_id=1, broker_epoch=epoch, failed=failed)]
        self._holds_s = holds_s

    async def read(self) -> m.LivenessPong | None:
        if self._answers:
            return self._answers.pop()
        await SimClock().sleep(self._holds_s)
        raise TransportError("UNAVAILABLE", "connection reset")

    async def write(self, message: m.LivenessPing) -> None:
        return None

    def cancel(self) -> None:
        return None


class Bench:
    """Probes are answered from `found`, the last of which is repeated; `probe_s` is what one takes."""

    def __init__(
        self,
        found: Sequence[Probe],
        *,
        epoch: int | None = 11,
        probe_s: float = 0.001,
        on_probe: Callable[[], None] = lambda: None,
        listeners: tuple[m.Listener, ...] = (INTERNAL,),
        failed: tuple[m.PartitionResult, ...] = (),
    ) -> None:
        self._failed = failed
        self.found = list(found)
        self.probed_at: list[float] = []
        self.reports: list[Any] = []
        self.broke_at: list[float] = []
        """When the stream broke, as each report of a suspect has it."""
        self.lease = asyncio.Event()
        self.lease.set()
        self._epoch = epoch
        self._probe_s = probe_s
        self._on_probe = on_probe
        self.watch = LivenessWatch(
            Broker(BrokerId(1), 11, 11, listeners),
            self,  # type: ignore[arg-type]  # the bench is the channel and the net in one
            self,  # type: ignore[arg-type]
            SimClock(),
            m.LivenessPing(controller_id=1, controller_epoch=1),
            0.05,
            self._may_act,
            self._report,
        )

    async def _may_act(self) -> None:
        await self.lease.wait()

    def _report(self, event: Any, since_s: float) -> None:
        self.reports.append(event)
        if isinstance(event, Suspected):
            self.broke_at.append(SimClock().now() - since_s)

    def open(self, _: Any) -> FakeStream:
        return FakeStream(self._epoch, 1.0, self._failed)

    async def probe(self, address: Address, timeout_s: float) -> Probe:
        assert address == Address("b1", 9092)
        self.probed_at.append(SimClock().now())
        self._on_probe()
        await SimClock().sleep(self._probe_s)
        return self.found.pop(0) if len(self.found) > 1 else self.found[0]

    async def run(self, seconds: float) -> None:
        Supervisor("test").start("watch", self.watch.run())
        await SimClock().sleep(seconds)

    @property
    def suspected(self) -> bool:
        return Suspected(BrokerId(1), 11) in self.reports


def after(bench: Callable[[], Bench], seconds: float = 1.2) -> Bench:
    async def tell() -> Bench:
        built = bench()
        await built.run(seconds)
        return built

    return sim.run(tell())


ALL_WORKS = BrokerAnswered(BrokerId(1), 11, ErrorCode.NONE, lists_all_failed=True)
"""What a pong says in which nothing has failed."""


def test_a_stream_that_holds_is_reported_once_and_nothing_is_probed() -> None:
    bench = after(lambda: Bench([Probe.REFUSED]), seconds=0.9)
    assert bench.reports == [StreamOpened(BrokerId(1), 11, 0.0), ALL_WORKS]
    assert bench.probed_at == []


@pytest.mark.parametrize("found", [Probe.REFUSED, Probe.GONE])
def test_two_refusals_50_ms_apart_make_a_suspect(found: Probe) -> None:
    bench = after(lambda: Bench([found]))
    assert bench.reports[1:] == [ALL_WORKS, StreamBroken(BrokerId(1), 11), Suspected(BrokerId(1), 11)]
    first, second = bench.probed_at
    assert second - first == pytest.approx(0.051)


@pytest.mark.parametrize(
    "found",
    [
        [Probe.REFUSED, Probe.OPEN],
        [Probe.OPEN, Probe.REFUSED, Probe.OPEN],
        [Probe.REFUSED, Probe.SILENT],
        [Probe.SILENT],
        [Probe.OPEN],
    ],
)
def test_one_refusal_silence_or_an_open_port_make_none(found: list[Probe]) -> None:
    assert not after(lambda: Bench(found), seconds=1.19).suspected


def test_a_port_that_goes_on_refusing_is_reported_again() -> None:
    # The machine takes one suspect at a time; the next one has to be there when the place is free.
    bench = after(lambda: Bench([Probe.REFUSED], epoch=None), seconds=4.0)
    assert bench.reports.count(Suspected(BrokerId(1), 11)) > 1
    assert bench.broke_at == pytest.approx([1.0] * len(bench.broke_at)), "it has been dead all the time"


def test_a_stream_that_was_there_again_broke_when_it_broke_last() -> None:
    bench = after(lambda: Bench([Probe.REFUSED]), seconds=4.0)
    assert len(bench.broke_at) > 2
    assert all(later - earlier > 1.0 for earlier, later in pairwise(bench.broke_at))


def test_another_life_on_the_stream_is_not_this_one() -> None:
    bench = after(lambda: Bench([Probe.OPEN], epoch=-1))
    assert bench.reports == []


def test_without_the_lease_nobody_is_suspected() -> None:
    def paused() -> Bench:
        bench = Bench([Probe.REFUSED])
        bench.lease.clear()
        return bench

    assert not after(paused, seconds=20.0).suspected


def test_a_controller_that_slept_between_probe_and_verdict_looks_again() -> None:
    def slept() -> Bench:
        bench = Bench([Probe.REFUSED, Probe.REFUSED, Probe.OPEN], on_probe=lambda: lapse(bench))
        return bench

    def lapse(bench: Bench) -> None:
        # The lease lapses after the second probe and comes back when its news is old.
        if len(bench.probed_at) == 2:
            bench.lease.clear()
            asyncio.get_running_loop().call_later(FRESH_S + 1, bench.lease.set)

    bench = after(slept, seconds=10.0)
    assert len(bench.probed_at) > 2
    assert not bench.suspected


def test_a_broker_without_an_internal_listener_is_left_to_its_session() -> None:
    assert after(lambda: Bench([Probe.REFUSED], listeners=())).reports == []


@requirement("A disk error takes one partition of one broker offline")
def test_a_disk_that_failed_is_reported_as_the_broker_tells_it() -> None:
    failed = (m.PartitionResult(topic="t", partition=3, error_code=ErrorCode.KAFKA_STORAGE_ERROR, topic_id=b"id"),)
    bench = after(lambda: Bench([Probe.OPEN], failed=failed), seconds=0.9)
    assert bench.reports[1:] == [
        BrokerAnswered(BrokerId(1), 11, ErrorCode.NONE, (FailedReplica(TopicPartition("t", 3), b"id"),), True)
    ]
    assert after(lambda: Bench([Probe.OPEN], epoch=-1, failed=failed), seconds=0.9).reports == []
