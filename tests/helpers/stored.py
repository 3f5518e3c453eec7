"""What ZooKeeper holds, read beside every process of the cluster: no fault between them can hide or colour it."""

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

SESSION_S: Final = 60.0
"""Longer than a server is away in any test."""
RETRY: Final = KazooRetry(max_tries=-1, max_delay=0.2)


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

    def controller_epoch(self) -> int:
        return znodes.decode_controller_epoch(self._get(znodes.CONTROLLER_EPOCH)[0])

    def _get(self, path: str) -> tuple[bytes, ZnodeStat]:
        data, stat = self._client.retry(self._client.get, path)
        return data, stat


@contextmanager
def stored_by(cluster: LocalCluster) -> Iterator[Stored]:
    hosts = ",".join(map(str, cluster.endpoints(ZOOKEEPER).values()))
    client = KazooClient(hosts, timeout=SESSION_S, connection_retry=RETRY.copy(), command_retry=RETRY.copy())
    client.start(timeout=10)
    try:
        yield Stored(client)
    finally:
        client.stop()
        client.close()
