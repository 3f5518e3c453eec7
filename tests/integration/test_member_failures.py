"""Members of a group under a crash loop, under links to their coordinator that are cut one way, and while ZooKeeper loses a
server, on real processes: rows 20 and 23 of the fault matrix for groups, COORD-15.

Agents work all the time. What holds in each of them: every acknowledged record is processed, no committed offset goes back, no
partition has two owners at one time, and whoever did nothing wrong is left alone.
"""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from helpers.aio import eventually
from helpers.cluster import end_faults, running_cluster
from helpers.groups import (
    COMMIT_INTERVAL_S,
    DRIFT_S,
    SHARDS,
    WITHIN_S,
    WorkingGroup,
    given_for_pauses_s,
    groups_of_one_coordinator,
    on_every_broker,
    owned_by,
    working_group,
)
from helpers.requirements import requirement
from helpers.stored import Stored, stored_by
from tidelog.chaos.ledger import Outcome
from tidelog.cluster.api import BROKER, CONTROLLER, ZOOKEEPER, broker_id_of
from tidelog.cluster.free_ports import free_ports
from tidelog.cluster.local import LocalCluster
from tidelog.ids import TopicPartition

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

SESSION_S = 8.0
"""A machine that builds an image beside this holds a process up for seconds: who did nothing wrong is left alone nevertheless."""
LEASE_S = SESSION_S + DRIFT_S
REBALANCE_S = 10.0
"""From the end of a lease until the partition is worked on again; 1 s on a machine that does nothing else."""
COMMIT_S = 3.0
"""How long a commit may be under way."""

LIVES = ("d1", "d2", "d3")
STEADY = ("a", "b", "c")

ZOOKEEPER_S = 20.0
"""Longer than any election among ZooKeeper's servers on a loaded machine, and so are two thirds of it: a coordinator's lease."""
LONG_S = 60.0
STALL_S = 6.0
"""Nobody stops; the machine may have much else to do."""
PATIENT = {"zookeeper_session_timeout_ms": str(int(ZOOKEEPER_S * 1000))}


class Loss(NamedTuple):
    """A member that is not heard of any more."""

    name: str
    at: float
    lost: set[TopicPartition]
    committed: dict[TopicPartition, int]
    """By then."""


async def loss_of(group: WorkingGroup, name: str) -> Loss:
    """Of what it has now, at this instant. Nothing is on its way from one to another."""
    lost, committed = owned_by(await group.described(), name), await group.offsets()
    assert lost
    return Loss(name, time.monotonic(), lost, committed)


def check_moved(group: WorkingGroup, loss: Loss, *heirs: str) -> None:
    """To these, or to any others, when its lease was out and soon after, without a gap. They repeat what it had not committed by
    then, and no more."""
    begun = group.first_after(loss.at, *(heirs or [each for each in group.agents if each != loss.name]))
    assert loss.lost <= begun.keys()
    # Its last answer came a third of the session before or a little more, and its lease counts from when it was sent.
    moved_s = [begun[tp].at - loss.at for tp in loss.lost]
    given_s = given_for_pauses_s(group.cluster, loss.at)
    assert SESSION_S / 3 < min(moved_s) <= max(moved_s) < LEASE_S + given_s + REBALANCE_S, (moved_s, given_s)
    for tp in loss.lost:
        own = [each for each in group.handled(loss.name) if each.tp == tp and each.at < begun[tp].at]
        assert loss.committed.get(tp, 0) <= begun[tp].offset <= own[-1].offset + 1
        repeated = [each for each in own if each.offset >= begun[tp].offset]
        assert all(each.at > loss.at - COMMIT_INTERVAL_S - COMMIT_S for each in repeated), "it was committed long ago"


@requirement("A crash loop of one consumer does not stop the other members")
async def test_a_member_that_dies_again_and_again_takes_no_more_from_the_others_than_what_it_owned(
    shared_cluster: LocalCluster, tmp_path: Path
) -> None:
    """Again when it works and its predecessor is gone, nine or ten seconds later; under another name each time."""

    async with working_group(shared_cluster, tmp_path, *STEADY, session_s=SESSION_S) as group:
        await group.all_commit()
        before, began_at, ledger = await group.described(), time.monotonic(), group.load.ledger
        sent, handled = ledger.count(Outcome.ACKED), len(group.handled(*STEADY))
        losses: list[Loss] = []
        for name in LIVES:
            group.start(name)  # the lease of its predecessor is not out yet
            await group.settled(*STEADY, name)
            await group.all_work(time.monotonic(), *STEADY, name)
            losses.append(await loss_of(group, name))
            await group.do(group.agents[name].kill)
        sent, handled = ledger.count(Outcome.ACKED) - sent, len(group.handled(*STEADY)) - handled
        assert handled > sent / 2, f"the others processed {handled} of {sent} records"
        after = await group.settled(*STEADY)
        assert after.generation <= before.generation + 2 * len(LIVES), "a rebalance for each coming and going at most"
        await group.all_work(time.monotonic(), *STEADY)
    for loss in losses:
        check_moved(group, loss)
    assert group.duplicates().keys() <= set().union(*(loss.lost for loss in losses))
    for tp, owners in group.owners(began_at).items():
        # A partition goes to a newcomer and comes back when that is dead; or it is never touched.
        assert len(owners) <= 1 + 2 * sum(tp in loss.lost for loss in losses), f"{tp}: {owners}"


def own_links(cluster: LocalCluster, end: str) -> str:
    """Links of `end` alone to every broker, as the setting `link_map` of who dials through them."""
    brokers = cluster.endpoints(BROKER)
    cluster.client_links()  # now there is a proxy
    return ",".join(
        f"{address}={cluster.proxy.add_link(end, name, address, port)}"
        for (name, address), port in zip(brokers.items(), free_ports(len(brokers)), strict=True)
    )


async def test_coord_15_members_whose_links_to_their_coordinator_are_cut_one_way_stop_before_the_next_owner_begins(
    shared_cluster: LocalCluster, tmp_path: Path
) -> None:
    """One is not heard and one hears nothing. They read all the time, from other brokers; what was held back arrives late."""
    unheard, deaf = "a", "b"

    broker, (group_id,) = await groups_of_one_coordinator(shared_cluster, 1)
    one, other = (each for each in (0, 1, 2) if each != broker_id_of(broker))
    ends = {name: f"{group_id}-{name}" for name in (unheard, deaf)}
    where = [[one, other], [other, one]] * 3
    async with working_group(
        shared_cluster, tmp_path, session_s=SESSION_S, group_id=group_id, assignment=where
    ) as group:
        for name, end in ends.items():
            group.start(name, link_map=own_links(shared_cluster, end))
        group.start("c")
        before, began_at = await group.settled("a", "b", "c"), time.monotonic()
        await group.all_commit()
        losses = [await loss_of(group, name) for name in ends]
        ways = [(ends[unheard], broker), (broker, ends[deaf])]
        for way in ways:
            shared_cluster.proxy.cut(*way)
        assert shared_cluster.passing(ways) == []
        alone = await group.settled("c")
        await group.all_work(time.monotonic(), "c")
        healed_at = time.monotonic()
        for way in ways:
            shared_cluster.proxy.join(*way)
        after = await group.settled("a", "b", "c")
        assert after.coordinator_epoch == before.coordinator_epoch
        await group.all_work(time.monotonic())
        await group.all_commit()
    for loss in losses:
        assert owned_by(after, loss.name), "it registered again"
        check_moved(group, loss, "c")
        begun = group.first_after(loss.at, "c")
        cut_off = [each for each in group.handled(loss.name) if loss.at < each.at < healed_at]
        assert cut_off, "its lease was not out yet"
        assert all(each.at < begun[each.tp].at for each in cut_off), "beside the new owner"
        for tp in loss.lost:
            assert group.owners(began_at)[tp][:2] == [loss.name, "c"]
    # They return together or one by one, and then the second takes its share of what the first was given.
    returns = after.generation - alone.generation
    assert 1 <= returns <= len(ends)
    lost = set().union(*(loss.lost for loss in losses))
    for tp, owners in group.owners(began_at).items():
        assert len(owners) <= 1 + (tp in lost) + returns, f"{tp}: {owners}"
    assert group.duplicates().keys() <= lost


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three ZooKeeper servers, and sessions that outlast an election among them."""
    base = tmp_path_factory.mktemp("ensemble") / "cluster"
    with running_cluster(base, zookeepers=3, settings={BROKER: PATIENT, CONTROLLER: PATIENT}) as cluster:
        yield cluster


def sessions(cluster: LocalCluster, stored: Stored) -> list[object]:
    """Of brokers, coordinators and the controller: an end of any of them shows here."""
    lives = [stored.broker_epoch(broker_id_of(name)) for name in cluster.names(BROKER)]
    expired = on_every_broker(cluster, "tidelog_zk_session_expirations_total")
    return [lives, [stored.coordinator(shard) for shard in range(SHARDS)], stored.controller_epoch(), expired]


async def serve(group: WorkingGroup, *servers: str) -> None:
    """Until these ZooKeeper servers have a leader that all others follow."""

    async def served() -> bool:
        modes = [await asyncio.to_thread(group.cluster.zookeeper_mode, name) for name in servers]
        return sorted(modes) == ["follower"] * (len(servers) - 1) + ["leader"]

    await group.until(f"{', '.join(servers)} serve", served)


@requirement("The death of one ZooKeeper server expires no session")
async def test_a_group_does_not_notice_that_zookeeper_loses_its_leader_or_another_server(
    ensemble: LocalCluster, tmp_path: Path
) -> None:
    try:
        servers = ensemble.names(ZOOKEEPER)
        async with working_group(ensemble, tmp_path, "a", "b", session_s=LONG_S) as group:
            await group.all_commit()
            with stored_by(ensemble) as stored:

                def led() -> list[tuple[int, int]]:
                    found = [stored.state(tp.topic, tp.partition) for tp in group.all_partitions]
                    return [(each.leader, each.leader_epoch) for each in found]

                before, began_at = await group.described(), time.monotonic()
                held, leaders = sessions(ensemble, stored), led()
                for mode in ("leader", "follower"):
                    name = next(each for each in servers if ensemble.zookeeper_mode(each) == mode)
                    await group.do(ensemble.kill, name)
                    await serve(group, *(each for each in servers if each != name))
                    await group.all_work(time.monotonic())
                    await group.all_commit()
                    await group.do(ensemble.start, name)
                    await serve(group, *servers)
                await group.all_commit()
                await eventually(lambda: stored.reachable, "ZooKeeper", timeout_s=WITHIN_S)
                assert sessions(ensemble, stored) == held, "a session has ended"
                assert led() == leaders, "nobody was elected"
                after = await group.described()
        assert replace(after, offsets=()) == replace(before, offsets=()), "the same coordinator, generation and owners"
        assert all(len(owners) == 1 for owners in group.owners(began_at).values())
        assert not group.duplicates() and group.pause_s(began_at) < STALL_S
    finally:
        end_faults(ensemble)
