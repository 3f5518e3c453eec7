"""A broker's znode over the simulated store: each life has an epoch, and a former self is not waited for (HOLE-40)."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from helpers.replication import until
from helpers.requirements import requirement
from tidelog.broker.registration import Registration
from tidelog.ids import BrokerId
from tidelog.ports.meta import Delete, SetData
from tidelog.runtime.zk_patterns import ensure_path
from tidelog.testing.clock import SimClock
from tidelog.testing.loop import SimProcess
from tidelog.testing.meta import SimMeta, SimZooKeeper
from tidelog.testing.meta_tree import Znode
from tidelog.testing.rand import seeded
from tidelog.wire.messages import Listener
from tidelog.wire.znodes import BrokerRegistration, broker_path, decode_broker

SESSION_S = 6.0
PATH = broker_path(1)


class Life:
    """One process of broker 1 on the data directory `directory`."""

    def __init__(self, store: SimZooKeeper, name: str = "first", directory: str = "d1") -> None:
        self.store = store
        self.process = SimProcess(name)
        self.meta: SimMeta = store.client(session_timeout_s=SESSION_S, request_timeout_s=3.0)
        self.epochs: list[int] = []
        self.intact_since = -1
        self.registration = Registration(
            lambda: BrokerRegistration(
                broker_id=BrokerId(1),
                listeners=(Listener(name="INTERNAL", host=name, port=9092),),
                rack="r",
                intact_since=self.intact_since,
                attempt="",
                directory_id=directory,
            ),
            self.meta,
            SimClock(),
            seeded(1, name),
            self.process.start,
            self.epochs.append,
        )

    async def start(self) -> "Life":
        await self.meta.start()
        self.process.start("registration", self.registration.run())
        return self

    async def registered(self, times: int = 1, limit_s: float = 1.0) -> None:
        await until(lambda: len(self.epochs) >= times, f"registration number {times}", limit_s)

    def kill(self) -> None:
        self.process.kill()
        self.meta.kill()

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


async def test_a_short_cut_costs_nothing(store: SimZooKeeper) -> None:
    life = await Life(store).start()
    await life.registered()
    for _ in range(5):
        life.meta.drop()
        await asyncio.sleep(1.0)
    assert len(life.epochs) == 1 and life.registration.holds_lease()


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
    mine = await Life(store, "mine").start()
    with caplog.at_level(logging.WARNING):
        await asyncio.sleep(2 * SESSION_S)
    assert mine.epochs == [] and mine.registration.broker_epoch == -1
    assert "if another process runs with this id, stop one of them" in caplog.text
    assert stranger.registration.holds_lease(), "it is not disturbed"
    stranger.kill()
    await mine.registered(limit_s=2 * SESSION_S)


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
