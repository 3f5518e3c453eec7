"""What ZooKeeper holds, read beside every process of the cluster: no fault between them can hide or colour it."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.protocol.states import ZnodeStat
from kazoo.retry import KazooRetry

from tidelog.cluster.api import ZOOKEEPER
from tidelog.cluster.local import LocalCluster
from tidelog.wire import znodes

SESSION_S: Final = 5.0
"""Also how long kazoo waits for a server that is still starting before it dials again."""
RETRY: Final = KazooRetry(max_tries=-1, max_delay=0.2)
quiet = logging.getLogger(f"{__name__}.kazoo")
"""A line for each attempt to connect would hide what a failed test has to say."""
quiet.setLevel(logging.ERROR)


@dataclass(frozen=True, slots=True)
class State:
    """Of one partition."""

    leader: int
    leader_epoch: int
    isr: frozenset[int]
    version: int
    """Grows with every change of leader or ISR."""
    controller_epoch: int
    """Of who wrote it."""


class Stored:
    def __init__(self, client: KazooClient) -> None:
        self._client = client

    @property
    def reachable(self) -> bool:
        return bool(self._client.connected)

    def state(self, topic: str, partition: int) -> State:
        data, stat = self._get(znodes.state_path(topic, partition))
        found = znodes.decode_state(topic, partition, data)
        isr = frozenset(member.broker_id for member in found.isr)
        return State(found.leader, found.leader_epoch, isr, stat.version, found.controller_epoch)

    def topic_id(self, topic: str) -> bytes:
        return znodes.decode_topic(topic, self._get(znodes.topic_path(topic))[0]).topic_id

    def moves(self, topic: str) -> set[int]:
        """Partitions with a reassignment under way."""
        return set(znodes.decode_topic(topic, self._get(znodes.topic_path(topic))[0]).moves)

    def versions(self, topic: str, partitions: int) -> list[int]:
        """Of the states of the first `partitions`, asked in one go."""
        asked = [self._client.exists_async(znodes.state_path(topic, each)) for each in range(partitions)]
        return [each.get(timeout=SESSION_S).version for each in asked]

    def lives(self, topic: str, partition: int = 0) -> dict[int, int]:
        """The broker epoch under which each member of the ISR was admitted."""
        found = znodes.decode_state(topic, partition, self._get(znodes.state_path(topic, partition))[0])
        return {member.broker_id: member.broker_epoch for member in found.isr}

    def broker_epoch(self, broker: int) -> int:
        """Of its present registration; -1 where there is none."""
        stat = self._client.retry(self._client.exists, znodes.broker_path(broker))
        return -1 if stat is None else int(stat.czxid)

    def names(self, path: str) -> set[str]:
        """What is below it; nothing where it is not there."""
        try:
            return set(self._client.retry(self._client.get_children, path))
        except NoNodeError:
            return set()

    def brokers(self) -> set[int]:
        """Whose session lives."""
        return {int(name) for name in self._client.retry(self._client.get_children, znodes.BROKER_IDS)}

    def controller(self) -> int | None:
        """The active one."""
        try:
            data, _ = self._get(znodes.CONTROLLER)
        except NoNodeError:
            return None
        return znodes.decode_controller(data).controller_id

    def coordinator(self, shard: int) -> tuple[int, int] | None:
        """The broker that holds the shard, and the ZooKeeper session by which it does."""
        try:
            data, stat = self._get(znodes.coordinator_path(shard))
        except NoNodeError:
            return None
        found = znodes.decode_coordinator(data, znodes.coordinator_path(shard))
        return int(found.broker_id), int(stat.ephemeralOwner)

    def controller_epoch(self) -> int:
        return znodes.decode_controller_epoch(self._get(znodes.CONTROLLER_EPOCH)[0])

    def _get(self, path: str) -> tuple[bytes, ZnodeStat]:
        data, stat = self._client.retry(self._client.get, path)
        return data, stat


@contextmanager
def stored_by(cluster: LocalCluster) -> Iterator[Stored]:
    hosts = ",".join(map(str, cluster.endpoints(ZOOKEEPER).values()))
    client = KazooClient(
        hosts, timeout=SESSION_S, connection_retry=RETRY.copy(), command_retry=RETRY.copy(), logger=quiet
    )
    client.start(timeout=10)
    try:
        yield Stored(client)
    finally:
        client.stop()
        client.close()
