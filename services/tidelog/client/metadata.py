"""The client's picture of the cluster, asked for at any broker and kept until an answer shows that it is old."""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from tidelog.client.connections import ClientPorts, Connections
from tidelog.client.errors import ClusterUnreachable
from tidelog.client.snapshot import ClusterSnapshot, Leadership, TopicInfo
from tidelog.errors import ErrorCode, TidelogError, TransportError, is_transient
from tidelog.ids import Address, BrokerId, TopicPartition
from tidelog.names import validate_topic_name
from tidelog.ports.net import Probe, Unary
from tidelog.runtime.retry import BOOTSTRAP, METADATA
from tidelog.wire import messages as m
from tidelog.wire.limits import parts_or_all
from tidelog.wire.services import COORDINATOR_SERVICE_CLUSTER_METADATA

Req = TypeVar("Req")
Res = TypeVar("Res")

_log = logging.getLogger("tidelog.client")

_ONE_BROKER_S = 2.0
"""A broker that is paused must not hold up the round: the next one is asked after this."""

_NOTICE_S = 1.0
"""A client that has tried for so long in vain says why in its log, once."""

_PROBE_S = 0.3
"""An address that neither accepts nor refuses a connection for so long is silent."""

_CAUSES: Final = {
    Probe.OPEN: "it accepts connections and does not answer as a broker",
    Probe.REFUSED: "connection refused",
    Probe.GONE: "no such host, or no route to it",
    Probe.UNRESOLVED: "its name cannot be looked up",
    Probe.SILENT: "no answer",
}
_CERTAIN: Final = frozenset({Probe.REFUSED, Probe.GONE, Probe.UNRESOLVED})

SPREAD_S = 1.0
"""How long the news of a topic's partitions may take to every broker."""

MAX_AGE_MS = 300_000
"""Kafka's metadata.max.age.ms: after so long a client asks again without a reason, and finds partitions that were added."""


class ClusterMetadata:
    """Bootstrap round robin, cache and refresh. One per client; `snapshot` is replaced, never changed."""

    def __init__(
        self,
        ports: ClientPorts,
        connections: Connections,
        bootstrap: Sequence[Address],
        limit_s: float,
        max_age_ms: int = MAX_AGE_MS,
    ) -> None:
        if not bootstrap:
            raise ValueError("bootstrap is empty: name at least one broker as host:port")
        self._ports = ports
        self._connections = connections
        self._bootstrap = tuple(bootstrap)
        self._limit_s = limit_s
        self._heard = False
        """A broker has answered."""
        self._noticed: set[str] = set()
        """Troubles that the log tells of."""
        self._max_age_s = max_age_ms / 1000
        self._turn = ports.rand.randrange(len(bootstrap))
        self._refreshing = asyncio.Lock()
        self._wanted: set[str] = set()
        self.snapshot = ClusterSnapshot()
        self.version = 0
        """Counts refreshes; hand it to `refresh` so that callers who saw the same picture cause one request."""

    def leadership(self, tp: TopicPartition) -> Leadership | None:
        return self.snapshot.leadership(tp)

    def address(self, broker: BrokerId) -> Address:
        """UNAVAILABLE when no broker names it any more: whoever chose it did so before the last refresh."""
        address = self.snapshot.brokers.get(broker)
        if address is None:
            raise TransportError("UNAVAILABLE", f"broker {broker} is no longer in the cluster")
        return address

    def hint(self, tp: TopicPartition, leader: int, leader_epoch: int) -> bool:
        """Takes over what a refusing broker said of the leader; True if that was news."""
        before = self.snapshot
        self.snapshot = before.hinted(tp, leader, leader_epoch)
        return self.snapshot is not before

    async def topic(self, name: str, limit_s: float | None = None) -> TopicInfo:
        """Waits for a topic that is just being created; UNKNOWN_TOPIC_OR_PARTITION when it stays unknown.

        INVALID_TOPIC_EXCEPTION at once when no topic may have this name.
        """
        known = self.snapshot.topics.get(name)
        if known is not None:
            return known
        validate_topic_name(name)
        self._wanted.add(name)
        limit = min(self._limit_s if limit_s is None else limit_s, self._ports.patience.unknown_topic_s)
        began = self._ports.clock.now()
        async for attempt in METADATA.retrying(self._ports.clock, self._ports.rand, limit):
            with attempt:
                await self.refresh(self.version)
                known = self.snapshot.topics.get(name)
                if known is None:
                    if self._ports.clock.now() - began >= _NOTICE_S:
                        self._notice(f"topic {name!r} does not exist")
                    self._refuse_unknown(name)
        assert known is not None
        return known

    async def topic_with(self, tp: TopicPartition) -> TopicInfo:
        """The topic of `tp`; UNKNOWN_TOPIC_OR_PARTITION when it stays without that partition.

        It may have been added since, and a broker that was asked just after the creation may have heard of some partitions only.
        """
        info = await self.topic(tp.topic)
        if 0 <= tp.partition < len(info.partitions):
            return info
        if tp.partition < 0:
            raise no_partition(tp, info)
        async for attempt in METADATA.retrying(self._ports.clock, self._ports.rand, min(SPREAD_S, self._limit_s)):
            with attempt:
                await self.refresh(self.version)
                info = await self.topic(tp.topic)
                if tp.partition >= len(info.partitions):
                    raise no_partition(tp, info)
        return info

    def _refuse_unknown(self, name: str) -> None:
        code = self.snapshot.errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise TidelogError(f"topic {name!r} does not exist; create it with `tidelog topics create`", code)
        raise TidelogError(f"topic {name!r}: {code.name}", code)

    async def refresh(self, seen: int, limit_s: float | None = None) -> None:
        """Asks again unless somebody already has since `seen`; ClusterUnreachable when no broker answers in time, to whomever."""
        limit = self._limit_s if limit_s is None else limit_s
        until = self._ports.clock.now() + limit
        # A lock, not a shared future: a caller that is cancelled must not take the others with it.
        try:
            async with asyncio.timeout(limit):
                await self._refreshing.acquire()
        except TimeoutError:
            raise ClusterUnreachable(dict.fromkeys(self._round(), "unavailable")) from None
        try:
            if self.version != seen:
                return
            topics: list[m.TopicMetadata] = []
            for names in parts_or_all(m.ClusterMetadataRequest, sorted(self._wanted)):
                request = m.ClusterMetadataRequest(topics=names)
                left = max(until - self._ports.clock.now(), 0.0)
                answer = await self._ask(COORDINATOR_SERVICE_CLUSTER_METADATA, request, _ONE_BROKER_S, left)
                topics += answer.topics
            self.snapshot = self.snapshot.updated(replace(answer, topics=tuple(topics)))
            self.version += 1
        finally:
            self._refreshing.release()

    async def due(self, wanted: asyncio.Event) -> None:
        """Returns when somebody wants a refresh, or the picture has become too old; clears `wanted`."""
        try:
            async with asyncio.timeout(self._max_age_s):
                await wanted.wait()
        except TimeoutError:
            pass  # growth of a topic breaks nothing that would make somebody ask
        wanted.clear()

    async def call_any(self, method: Unary[Req, Res], request: Req, timeout_s: float, limit_s: float) -> Res:
        """The answer of the first broker that gives one, asked in turn; for reads, which may be repeated at will."""
        return await self._ask(method, request, timeout_s, limit_s)

    async def call_one(self, method: Unary[Req, Res], request: Req, timeout_s: float) -> Res:
        """One try at the next broker in turn; TransportError when it does not answer."""
        address = self._round()[0]
        self._turn += 1
        return await self._connections.to(address, "admin", to_anyone=True).call(method, request, timeout_s)

    def want(self, names: Iterable[str]) -> bool:
        """The next refresh asks for these too; True if one of them is not known yet."""
        names = set(names)
        self._wanted |= names
        return not names <= self.snapshot.topics.keys()

    def forget(self, name: str) -> None:
        self._wanted.discard(name)

    def learn(self, brokers: Iterable[m.BrokerInfo]) -> None:
        """Of somebody who knows who is alive (A13.16): they are asked in turn from now on."""
        live = {BrokerId(b.id): Address(b.host, b.port) for b in brokers}
        if live:
            self.snapshot = replace(self.snapshot, brokers=live)

    def _round(self) -> list[Address]:
        known = [a for _, a in sorted(self.snapshot.brokers.items())] or list(self._bootstrap)
        turn = self._turn % len(known)
        return known[turn:] + known[:turn] + [a for a in self._bootstrap if a not in known]

    async def _ask(self, method: Unary[Req, Res], request: Req, timeout_s: float, limit_s: float) -> Res:
        began = self._ports.clock.now()
        try:
            async for attempt in BOOTSTRAP.retrying(self._ports.clock, self._ports.rand, limit_s):
                tried_s = self._ports.clock.now() - began
                if not self._heard and tried_s >= min(_NOTICE_S, self._ports.patience.unreachable_s):
                    await self._look_why(tried_s)
                with attempt:
                    return await self._ask_round(method, request, timeout_s)
        except TransportError as error:
            causes = dict.fromkeys(self._round(), error.status.lower())
            if not self._heard and is_transient(error):
                causes = {address: _CAUSES[probe] for address, probe in (await self._probed()).items()}
            raise ClusterUnreachable(causes) from error
        raise AssertionError("a loop of attempts ends with an answer or an error")

    async def _look_why(self, tried_s: float) -> None:
        """Says in the log why no broker answers; ClusterUnreachable where further tries are not worth it."""
        found = await self._probed()
        certain = _CERTAIN.issuperset(found.values())
        error = ClusterUnreachable({address: _CAUSES[probe] for address, probe in found.items()}, certain=certain)
        if certain and tried_s >= self._ports.patience.unreachable_s:
            raise error
        self._notice(error.message)

    async def _probed(self) -> dict[Address, Probe]:
        return {each: await self._ports.net.probe(each, _PROBE_S) for each in sorted(self._round())}

    def _notice(self, trouble: str) -> None:
        if trouble not in self._noticed:
            self._noticed.add(trouble)
            _log.warning("%s; still trying", trouble)

    async def _ask_round(self, method: Unary[Req, Res], request: Req, timeout_s: float) -> Res:
        last: TransportError | None = None
        for address in self._round():
            self._turn += 1
            try:
                channel = self._connections.to(address, "metadata", to_anyone=True)
                answer = await channel.call(method, request, timeout_s)
            except TransportError as error:
                if not is_transient(error):
                    raise
                last = error
                continue
            if not isinstance(answer, m.ClusterMetadataResponse) or answer.brokers_info:
                self._heard = True
                return answer
            # A broker that has just started answers before it knows anything.
            last = TransportError("UNAVAILABLE", f"{address} knows no cluster yet")
        assert last is not None
        raise last


def no_partition(tp: TopicPartition, info: TopicInfo) -> TidelogError:
    """What refuses a partition that its topic does not have: UNKNOWN_TOPIC_OR_PARTITION, with those it has."""
    known = f"topic {tp.topic!r} has partitions 0 to {len(info.partitions) - 1}"
    return TidelogError(f"{known}, partition {tp.partition} does not exist", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
