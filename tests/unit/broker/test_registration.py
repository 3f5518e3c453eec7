"""A broker's znode over the simulated store: each life has an epoch, and a former self is not waited for (HOLE-40)."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import pytest

from helpers.replication import until
from helpers.requirements import requirement
from tidelog.broker.registration import Registration
from tidelog.ids import Address, BrokerId
from tidelog.ports.meta import Delete, Op, SetData
from tidelog.ports.net import CallContext, Route, Stream
from tidelog.runtime.tasks import MustEnd
from tidelog.runtime.zk_patterns import ensure_path
from tidelog.testing.clock import SimClock
from tidelog.testing.loop import SimProcess
from tidelog.testing.meta import SimMeta, SimZooKeeper
from tidelog.testing.meta_tree import Znode
from tidelog.testing.net import SimNetwork
from tidelog.testing.rand import seeded
from tidelog.wire.messages import Listener, LivenessPing, LivenessPong
from tidelog.wire.services import BROKER_CONTROL_LIVENESS
from tidelog.wire.znodes import (
    BrokerRegistration,
    StoredDirectories,
    broker_directories_path,
    broker_path,
    decode_broker,
    decode_directories,
)

SESSION_S = 6.0
PATH = broker_path(1)


NETWORKS: "WeakKeyDictionary[SimZooKeeper, SimNetwork]" = WeakKeyDictionary()
"""The network of all processes at one store."""


class Life:
    """One process of broker 1 on the data directory `directory`, on a host of its own."""

    def __init__(self, store: SimZooKeeper, name: str = "first", directory: str = "d1", host: str = "") -> None:
        self.store = store
        self.process = SimProcess(name)
        self.address = Address(host or name, 9092)
        network = NETWORKS.setdefault(store, SimNetwork(seeded(1, "network")))
        self.net = network.node(self.address.host, self.process)
        self.meta: SimMeta = store.client(session_timeout_s=SESSION_S, request_timeout_s=3.0)
        self.epochs: list[int] = []
        self.intact_since = -1
        self.registration = Registration(
            lambda: BrokerRegistration(
                broker_id=BrokerId(1),
                listeners=(Listener(name="INTERNAL", host=self.address.host, port=9092),),
                rack="r",
                intact_since=self.intact_since,
                attempt="",
                directory_id=directory,
            ),
            self.meta,
            self.net,
            SimClock(),
            seeded(1, name),
            self.process.start,
            self.epochs.append,
            self.beside,
        )

    async def start(self) -> "Life":
        await self.listen(1)
        await self.meta.start()
        self.process.start("registration", self.registration.run())
        return self

    async def beside(self) -> list[Op]:
        return []

    async def listen(self, broker_id: int) -> None:
        async def answer(stream: Stream[LivenessPing, LivenessPong], _: CallContext) -> None:
            while await stream.read() is not None:
                await stream.write(LivenessPong(broker_id=broker_id, broker_epoch=self.registration.broker_epoch))

        await self.net.serve(self.address, [Route(BROKER_CONTROL_LIVENESS, answer)], self.address)

    async def registered(self, times: int = 1, limit_s: float = 1.0) -> None:
        await until(lambda: len(self.epochs) >= times, f"registration number {times}", limit_s)

    def kill(self) -> None:
        self.process.kill()
        self.net.network.kill(self.address.host)
        self.meta.kill()

    def pause(self) -> None:
        self.process.pause()
        self.net.network.pause(self.address.host)
        self.meta.pause()

    def resume(self) -> None:
        self.process.resume()
        self.net.network.resume(self.address.host)
        self.meta.resume()

    @property
    def verdict(self) -> str:
        """The line with which it has ended by itself; "" while it runs."""
        failure = self.process.supervisor.failure
        assert failure is None or isinstance(failure.__cause__, MustEnd)
        return "" if failure is None else failure.__cause__.message

    @property
    def tasks(self) -> list[str]:
        return self.process.supervisor.running


def znode(store: SimZooKeeper) -> Znode | None:
    return store.dump().get(PATH)


def described(store: SimZooKeeper) -> BrokerRegistration:
    node = znode(store)
    assert node is not None
    return decode_broker(1, node.data)


@pytest.fixture
def store() -> SimZooKeeper:
    return SimZooKeeper(seeded(1, "zookeeper"))


@requirement("ZooKeeper lists brokers, topics and their partitions")
@requirement("A fast bounce is detected by the broker epoch")
@requirement("A broker registers its address in an ephemeral znode")
async def test_the_first_registration_says_who_and_where_and_its_czxid_is_the_epoch(store: SimZooKeeper) -> None:
    life = Life(store)
    assert life.registration.broker_epoch == -1 and not life.registration.holds_lease()
    await life.start()
    await life.registered()
    node, found = znode(store), described(store)
    assert node is not None
    assert life.epochs == [node.stat.czxid] == [life.registration.broker_epoch]
    assert node.stat.ephemeral_owner == life.meta.session_id
    assert (found.rack, found.listeners[0].host, found.intact_since) == ("r", "first", -1)
    await until(life.registration.holds_lease, limit_s=1.0)


@requirement("Epochs never decrease and one epoch has one leader")
async def test_a_lost_session_is_followed_by_another_epoch(store: SimZooKeeper) -> None:
    life = await Life(store).start()
    await life.registered()
    life.intact_since = 77
    store.expire(life.meta.session_id)
    await life.registered(2)
    first, second = life.epochs
    node = znode(store)
    assert node is not None and second == node.stat.czxid > first
    assert described(store).intact_since == 77  # described anew
    await until(life.registration.holds_lease, limit_s=1.0)
    await asyncio.sleep(3 * SESSION_S)
    assert len(life.epochs) == 2 and life.registration.holds_lease()
    assert life.tasks == ["registration", "lease"]


@requirement("A leader cut from ZooKeeper stops committing when replaced")
@requirement("An isolated broker truncates its own tail when it rejoins")
async def test_a_cut_that_outlives_the_session_costs_the_lease_first_and_the_epoch_then(store: SimZooKeeper) -> None:
    life = await Life(store).start()
    await life.registered()
    await asyncio.sleep(1.0)
    life.meta.cut()
    # The lease is over before anybody else can know: two thirds of the session after the last confirmed write.
    await until(lambda: not life.registration.holds_lease(), limit_s=SESSION_S * 2 / 3 + 0.1)
    assert znode(store) is not None
    await until(lambda: znode(store) is None, limit_s=SESSION_S)
    assert life.registration.broker_epoch == life.epochs[0], "it cannot know yet"
    life.meta.heal()
    await life.registered(2, limit_s=3.0)


@requirement("Leaders keep serving while ZooKeeper has no quorum")
async def test_a_short_cut_costs_nothing(store: SimZooKeeper) -> None:
    life = await Life(store).start()
    await life.registered()
    for _ in range(5):
        life.meta.drop()
        await asyncio.sleep(1.0)
    assert len(life.epochs) == 1 and life.registration.holds_lease()


@requirement("A fast bounce is detected by the broker epoch")
@requirement("An ephemeral znode counts only for the session that made it")
async def test_a_former_self_is_taken_over_at_once(store: SimZooKeeper) -> None:
    first = await Life(store).start()
    await first.registered()
    first.kill()
    second = await Life(store, "second").start()
    await second.registered(limit_s=0.5)
    assert znode(store) is not None and second.epochs[0] > first.epochs[0]
    assert described(store).listeners[0].host == "second"
    await asyncio.sleep(3 * SESSION_S)  # the end of the first session takes nothing away
    assert len(second.epochs) == 1 and second.registration.holds_lease()


@requirement("An ephemeral znode counts only for the session that made it")
async def test_a_stranger_with_this_id_is_waited_for(store: SimZooKeeper, caplog: pytest.LogCaptureFixture) -> None:
    stranger = await Life(store, "stranger", directory="d2").start()
    await stranger.registered()
    stranger.net.network.cut("mine", "stranger")
    mine = await Life(store, "mine").start()
    with caplog.at_level(logging.WARNING):
        await asyncio.sleep(2 * SESSION_S)
    assert mine.epochs == [] and mine.registration.broker_epoch == -1 and not mine.verdict
    assert "if another process runs with this id, stop one of them" in caplog.text
    assert stranger.registration.holds_lease(), "it is not disturbed"
    stranger.kill()
    await mine.registered(limit_s=2 * SESSION_S)


@pytest.mark.parametrize("directory", ["d1", "d2"], ids=["copied directory", "other directory"])
async def test_a_second_process_ends_and_names_the_first(store: SimZooKeeper, directory: str) -> None:
    first = await Life(store).start()
    await first.registered()
    second = await Life(store, "second", directory).start()
    await until(lambda: second.verdict != "", limit_s=1.0)
    assert second.verdict.startswith(
        f"another process with broker id 1 runs already: it is registered at first:9092 with broker epoch {first.epochs[0]}, "
    )
    await asyncio.sleep(2 * SESSION_S)
    assert second.epochs == [] and len(first.epochs) == 1
    assert first.registration.holds_lease() and not first.verdict, "it is not disturbed"


async def test_a_paused_process_is_not_taken_for_dead(store: SimZooKeeper) -> None:
    first = await Life(store).start()
    await first.registered()
    first.pause()
    second = await Life(store, "second").start()
    await asyncio.sleep(2.0)
    assert second.epochs == [] and not second.verdict
    first.resume()
    await until(lambda: "first:9092" in second.verdict, limit_s=10.0)
    assert first.registration.holds_lease() and len(first.epochs) == 1


async def test_a_process_out_of_reach_is_not_taken_for_dead(store: SimZooKeeper) -> None:
    first = await Life(store).start()
    await first.registered()
    first.net.network.cut("second", "first")
    second = await Life(store, "second").start()
    await asyncio.sleep(SESSION_S)
    assert second.epochs == [] and not second.verdict
    assert first.registration.holds_lease() and len(first.epochs) == 1
    first.net.network.heal("second", "first")
    await until(lambda: "first:9092" in second.verdict, limit_s=10.0)


async def test_a_process_paused_beyond_its_session_ends(store: SimZooKeeper) -> None:
    first = await Life(store).start()
    await first.registered()
    first.pause()
    second = await Life(store, "second").start()
    await second.registered(limit_s=2 * SESSION_S)
    first.resume()
    await until(lambda: "runs already: it is registered at second:9092" in first.verdict, limit_s=5.0)
    await asyncio.sleep(2 * SESSION_S)
    assert len(second.epochs) == 1 and second.registration.holds_lease() and not second.verdict


async def test_a_former_life_in_an_older_copy_has_taken_nothing(store: SimZooKeeper) -> None:
    """In the copy, the session of this life is open, and the registration is that of the life before it."""
    former = await Life(store).start()
    await former.registered()
    former.kill()
    life = Life(store, "again", host="first")
    await life.listen(1)
    await life.meta.start()
    copy = store.copy()
    life.process.start("registration", life.registration.run())
    await life.registered(limit_s=SESSION_S)
    store.stop()
    store.return_to(copy, zxid=store.zxid + 1)
    store.start()
    assert described(store).directory_id == "d1" and znode(store) == copy.nodes[PATH]
    await life.registered(times=2, limit_s=2 * SESSION_S)
    await until(life.registration.holds_lease, limit_s=1.0)
    assert not life.verdict


async def test_a_process_whose_registration_is_taken_ends(store: SimZooKeeper) -> None:
    """Another one could not reach it, because of a firewall that refuses."""
    first = await Life(store).start()
    await first.registered()
    first.net.network.refuse("second", "first")
    second = await Life(store, "second").start()
    await second.registered()
    await until(lambda: first.verdict != "", limit_s=SESSION_S)
    assert "has taken the registration of this one: it is registered at second:9092" in first.verdict
    await asyncio.sleep(2 * SESSION_S)
    assert len(first.epochs) == len(second.epochs) == 1 and second.registration.holds_lease() and not second.verdict


async def test_another_data_directory_is_recorded_with_its_epoch(store: SimZooKeeper) -> None:
    epochs = []
    for directory in ("d1", "d1", "d2", "d1"):
        life = await Life(store, f"host{len(epochs)}", directory).start()
        await life.registered(limit_s=2 * SESSION_S)
        epochs += life.epochs
        life.kill()
    node = store.find(broker_directories_path(1))
    assert node is not None and node.stat.mzxid == epochs[3]
    stored = decode_directories(1, node.data)
    assert stored == StoredDirectories("d1", ((epochs[0], "d1"), (epochs[2], "d2")))


async def test_a_bad_record_of_directories_stops_no_broker(store: SimZooKeeper) -> None:
    operator = store.client()
    await operator.start()
    path = broker_directories_path(1)
    await ensure_path(operator, path)
    await operator.multi([SetData(path, b"{", -1)])
    life = await Life(store).start()
    await life.registered()


@pytest.mark.parametrize("broker_id", [1, 2], ids=["itself", "another broker"])
async def test_a_former_self_whose_address_is_taken_is_dead(store: SimZooKeeper, broker_id: int) -> None:
    first = await Life(store).start()
    await first.registered()
    first.kill()
    if broker_id != 1:
        await Life(store, "neighbour", host="first").listen(broker_id)
    second = await Life(store, "second", host="first" if broker_id == 1 else "elsewhere").start()
    await second.registered(limit_s=0.5)
    assert second.epochs[0] > first.epochs[0]


async def test_a_znode_of_nonsense_is_waited_for_like_a_strangers(store: SimZooKeeper) -> None:
    first = await Life(store).start()
    await first.registered()
    await first.meta.multi([SetData(PATH, b"{", -1)])
    first.kill()
    second = await Life(store, "second").start()
    await second.registered(limit_s=2 * SESSION_S)


async def test_after_stop_the_end_of_the_session_is_no_reason_to_register(store: SimZooKeeper) -> None:
    life = await Life(store).start()
    await life.registered()
    life.registration.stop()
    await life.meta.close()
    await asyncio.sleep(2 * SESSION_S)
    assert znode(store) is None
    assert len(life.epochs) == 1
    assert not life.tasks and not life.process.supervisor.failures


@pytest.mark.parametrize("after_s", [i * 0.0005 for i in range(12)])
async def test_a_stop_in_the_middle_of_anything_is_no_failure(store: SimZooKeeper, after_s: float) -> None:
    life = await Life(store).start()
    await asyncio.sleep(after_s)
    life.registration.stop()
    await life.meta.close()
    await asyncio.sleep(SESSION_S)
    assert not life.tasks and not life.process.supervisor.failures
    assert znode(store) is None


async def test_a_stop_while_a_stranger_is_waited_for_is_no_failure(store: SimZooKeeper) -> None:
    stranger = await Life(store, "stranger", directory="d2").start()
    await stranger.registered()
    stranger.net.network.cut("mine", "stranger")
    mine = await Life(store, "mine").start()
    await asyncio.sleep(1.0)
    mine.registration.stop()
    await mine.meta.close()
    await asyncio.sleep(2 * SESSION_S)
    assert not mine.tasks and not mine.process.supervisor.failures


async def test_a_registration_that_somebody_deletes_is_made_again(store: SimZooKeeper) -> None:
    life = await Life(store).start()
    await life.registered()
    operator = store.client()
    await operator.start()
    await operator.multi([Delete(PATH, -1)])
    await life.registered(2, limit_s=SESSION_S / 2)
    assert life.epochs[1] > life.epochs[0]
    await until(life.registration.holds_lease, limit_s=1.0)


@pytest.mark.parametrize("applied", [True, False], ids=["applied", "lost"])
async def test_a_registration_without_an_answer_is_examined(store: SimZooKeeper, applied: bool) -> None:
    life = Life(store)
    await life.meta.start()
    other = store.client()
    await other.start()
    for path in ("/brokers", "/brokers/ids"):
        await ensure_path(other, path)
    life.meta.lose_next_answer(applied=applied)
    life.process.start("registration", life.registration.run())
    await life.registered(limit_s=3.0)
    node = znode(store)
    assert node is not None and life.epochs == [node.stat.czxid]


@pytest.mark.parametrize("seed", range(10))
async def test_whatever_befalls_the_session_the_epoch_is_that_of_the_znode_in_the_end(seed: int) -> None:
    store = SimZooKeeper(seeded(seed, "zookeeper"))
    rand = seeded(seed, "faults")
    life = await Life(store).start()
    faults: list[Callable[[], Any]] = [
        life.meta.drop,
        life.meta.cut,
        life.meta.heal,
        lambda: store.expire(life.meta.session_id),
        lambda: life.meta.lose_next_answer(applied=rand.random() < 0.5),
    ]
    for _ in range(40):
        await asyncio.sleep(rand.random() * 4)
        faults[rand.randrange(len(faults))]()
    life.meta.heal()
    await asyncio.sleep(3 * SESSION_S)
    node = znode(store)
    assert node is not None and node.stat.czxid == life.registration.broker_epoch == life.epochs[-1]
    assert life.epochs == sorted(set(life.epochs))
    assert life.registration.holds_lease()
    assert life.tasks == ["registration", "lease"]


@pytest.mark.parametrize("after_s", [i * 0.0005 for i in range(12)])
async def test_i14_a_loss_in_the_middle_of_a_registration_is_in_it_or_in_another_epoch(
    store: SimZooKeeper, after_s: float
) -> None:
    """`intact_since` is read before the registration is written: what is lost in between must not be promised."""

    life = Life(store)
    life.intact_since = 7
    await life.start()
    await asyncio.sleep(after_s)
    before = list(life.epochs)
    life.intact_since = -1
    await life.registered(1)
    node = znode(store)
    assert node is not None and life.epochs == [node.stat.czxid]
    # A life that was registered before the loss keeps its epoch; one that was not is not called intact.
    assert before or described(store).intact_since == -1
    await until(life.registration.holds_lease, limit_s=1.0)


async def test_i14_the_epoch_of_a_promise_that_did_not_hold_is_never_the_brokers(store: SimZooKeeper) -> None:
    """Whatever a controller wrote about it names a life that nobody lives: the veto stands (reliability 3.6)."""

    life = Life(store)
    life.intact_since = 7
    await life.start()
    await until(lambda: znode(store) is not None)
    promised = znode(store)
    assert promised is not None and life.epochs == [], "it has not heard of its registration yet"
    life.intact_since = -1
    await life.registered(1)
    assert life.epochs[0] > promised.stat.czxid and described(store).intact_since == -1
