"""A broker's part in coordinating the groups: it stands for election for every shard and serves those that it wins."""

import asyncio
import itertools
import logging
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from tidelog.coordinator.election import LiveBrokers, rank, shard_of
from tidelog.coordinator.ends import AddressOf, EndFinder, LeaderOf
from tidelog.coordinator.machine import CoordinatorMachine
from tidelog.coordinator.model import GroupLimits
from tidelog.coordinator.term import Surroundings, Term
from tidelog.coordinator.topics import TopicWatcher
from tidelog.ids import BrokerId, TopicPartition
from tidelog.ports.clock import Clock
from tidelog.ports.meta import Create, Meta, MetaError, SessionClosed, SessionState
from tidelog.ports.net import Net
from tidelog.ports.rand import Rand
from tidelog.ports.recorder import SILENT, Recorder
from tidelog.runtime import zk_patterns
from tidelog.runtime.clock import RetentionClock
from tidelog.runtime.election_event import resign
from tidelog.runtime.group_metrics import GroupMetrics
from tidelog.runtime.lease import PauseWatch
from tidelog.runtime.tasks import Supervisor
from tidelog.wire import znodes

log = logging.getLogger(__name__)

NOBODY: Final = -1
READ_AGAIN_S: Final = 0.1
STAND_AGAIN_S: Final = 0.5
"""Between the end of a term and the next try, so that another broker comes first and a damaged znode costs no CPU."""

GIVE_BACK_S: Final = 10.0
"""A shard whose first broker has been live for so long is given back to it."""

LAGS_APART_S: Final = 0.2
"""Between two look-ups of lags at least: a thousand groups may come at once."""

LOOK_S: Final = 1.0
PAUSE_S: Final = 0.5
"""A process that did not run for so long says so to its terms (COORD-8)."""

ALARM_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class CoordinatorSettings:
    broker_id: int
    shards: int
    """What the first broker stores; what is stored counts."""
    election_delay_s: float
    limits: GroupLimits
    lag_interval_s: float
    lag_partitions_max: int


class Coordinators:
    """The same class runs in production and in the simulator; only the ports differ."""

    def __init__(
        self,
        settings: CoordinatorSettings,
        meta: Meta,
        clock: Clock,
        net: Net,
        rand: Rand,
        leader_of: LeaderOf,
        address_of: AddressOf,
        metrics: GroupMetrics,
        recorder: Recorder = SILENT,
    ) -> None:
        """`meta` is a session of its own: what a broker does with its other one must not cost it the groups (A19.14)."""
        self._settings = settings
        self._meta = meta
        self._clock = clock
        self._rand = rand
        self._metrics = metrics
        self._brokers = LiveBrokers(meta, clock)
        self._topics = TopicWatcher(meta, clock, metrics.unreadable)
        self._ends = EndFinder(net, leader_of, address_of)
        self._pauses = PauseWatch(PAUSE_S)
        self._calendar = RetentionClock(clock.wall_ms(), clock.now())
        self._connection_ids = itertools.count(1)
        self._holders: list[int] = []
        self._offered: dict[int, int] = {}
        """Shard -> broker epoch of the one to which it was given back and which has not been seen to take it."""
        self._stopping = False
        self._electors = Supervisor("coordinator electors")
        self.terms: dict[int, Term] = {}
        """By shard, those that this broker serves or takes over."""
        self.lags: dict[str, dict[TopicPartition, int]] = {}
        """Records that groups have not committed, at the last look-up: for metrics."""
        self._lags_wanted = asyncio.Event()
        self._around = Surroundings(
            broker_id=settings.broker_id,
            meta=meta,
            clock=clock,
            topics=self._topics,
            brokers=self._brokers,
            ends=self._ends,
            metrics=metrics,
            wall_ms=lambda: int(self._calendar.read(clock.wall_ms(), clock.now())),
            notice_pause=self._notice_pause,
            look_up_lags=self._lags_wanted.set,
            recorder=recorder,
        )

    @property
    def shards(self) -> int:
        """0: it is not known yet."""
        return len(self._holders)

    def coordinator_of(self, group_id: str) -> int:
        """Broker id; -1: none is known. An empty group id asks for shard 0's, the one of D0."""
        if not self._holders:
            return NOBODY
        return self._holders[shard_of(group_id, self.shards) if group_id else 0]

    def term_of(self, group_id: str) -> Term | None:
        return self.terms.get(shard_of(group_id, self.shards)) if self._holders else None

    async def run(self, spawn: Callable[[str, Coroutine[Any, Any, None]], object]) -> None:
        """Until cancelled or stopped. TaskFailed: a bug."""
        try:
            await self._meta.start()
            await zk_patterns.ensure_path(self._meta, znodes.CONSUMERS)
            await zk_patterns.ensure_path(self._meta, znodes.TOPICS)
            self._holders = [NOBODY] * await self._number_of_shards()
        except SessionClosed:
            return  # stopped before it had begun
        self._meta.on_session(self._on_session)
        spawn("coordinator brokers", self._brokers.run())
        spawn("coordinator topics", self._topics.run())
        spawn("coordinator pauses", self._watch_pauses())
        spawn("coordinator lags", self._watch_lags())
        for shard in range(self.shards):
            self._electors.start(f"coordinator elections of shard {shard}", self._stand(shard))
        await self._electors.wait()

    async def stop(self) -> None:
        """In order (A8.04): nobody stands any more, the last offsets are stored, streams end, and others are elected at once."""
        self._stopping = True
        terms = list(self.terms.values())
        async with asyncio.TaskGroup() as group:
            for term in terms:
                group.create_task(term.finish("this broker stops"))
        for term in terms:
            await term.closed()
        await self._electors.stop()
        await self._meta.close()
        await self._ends.close()

    # elections

    async def _stand(self, shard: int) -> None:
        path = znodes.coordinator_path(shard)
        while not self._stopping:
            try:
                vacant = await self._until_vacant(shard)
                if not vacant or self._stopping:
                    continue
                await self._clock.sleep(self._delay(shard))
                if self._stopping:
                    return
                if self._settings.broker_id not in self._brokers.ids:
                    await self._clock.sleep(READ_AGAIN_S)  # nobody could find it
                    continue
                payload = self._payload()
                elected = await zk_patterns.elect(self._meta, path, znodes.coordinator_epoch_path(shard), payload)
            except znodes.BadZnode as error:
                log.error("nobody can coordinate shard %d: %s; repair this znode", shard, error)
                await self._clock.sleep(STAND_AGAIN_S)
                continue
            except SessionClosed:
                return
            except MetaError as error:
                log.info("cannot stand for shard %d: %r; again", shard, error)
                await self._clock.sleep(READ_AGAIN_S)
                continue
            if elected is not None:
                await self._serve(shard, elected, payload)

    async def _until_vacant(self, shard: int) -> bool:
        """Notes who holds the shard, and waits until that changes (A8.01). True: nobody does."""
        changed = asyncio.Event()
        path = znodes.coordinator_path(shard)
        if await self._meta.exists(path, changed.set) is None:
            self._holders[shard] = NOBODY
            return True
        found = await zk_patterns.find(self._meta, path)
        if found is None:
            return False
        data, stat = found
        if stat.ephemeral_owner == self._meta.session_id:
            # Of a term that is over: another term needs another epoch, so that the last one is fenced.
            await resign(self._meta, path, self._around.recorder)
            return False
        holder = self._holders[shard] = znodes.decode_coordinator(data, path).broker_id
        if self._offered.get(shard) == self._brokers.life_of(holder):
            del self._offered[shard]  # it took it: if it loses the shard in the same life, it may have it again
        # Each beat of the holder's lease wakes us too: one read a beat keeps this session proven.
        await changed.wait()
        return False

    def _delay(self, shard: int) -> float:
        return rank(shard, self._settings.broker_id, self._brokers.ids) * self._settings.election_delay_s

    async def _serve(self, shard: int, elected: zk_patterns.Elected, payload: bytes) -> None:
        machine = CoordinatorMachine(self._settings.limits, self._rand.random)
        term = Term(
            shard,
            elected,
            payload,
            lambda group_id: shard_of(group_id, self.shards) == shard,
            machine,
            self._around,
            self._connection_ids,
        )
        self.terms[shard] = term
        self._holders[shard] = self._settings.broker_id
        try:
            async with asyncio.TaskGroup() as group:
                watch = group.create_task(self._give_back(term))
                await term.run()
                watch.cancel()
        finally:
            del self.terms[shard]
            self._holders[shard] = NOBODY
        await resign(self._meta, znodes.coordinator_path(shard), self._around.recorder, term.resigned)
        await self._clock.sleep(STAND_AGAIN_S)

    async def _give_back(self, term: Term) -> None:
        """To the broker that comes first, once it seems to stay: that is how shards spread again after a restart."""
        me = self._settings.broker_id
        began_at = self._clock.now()
        while True:
            await self._clock.sleep(LOOK_S)
            live = self._brokers.ids
            first = min(live, key=lambda each: rank(term.shard, each, live), default=me)
            life = self._brokers.life_of(first)
            stays = min(self._clock.now() - began_at, self._brokers.live_for(first)) >= GIVE_BACK_S
            if first == me or me not in live or not stays or self._offered.get(term.shard) == life:
                continue
            # Once, until it has taken it or begins another life: if it does not take the shard, it cannot.
            self._offered[term.shard] = life
            await term.finish(f"broker {first} comes first")
            return

    def _payload(self) -> bytes:
        return znodes.encode_coordinator(
            znodes.CoordinatorRegistration(BrokerId(self._settings.broker_id), self._rand.randbytes(8).hex())
        )

    async def _number_of_shards(self) -> int:
        """As stored: were it each broker's own word, two of them might coordinate one group."""
        wanted = self._settings.shards
        while True:
            try:
                await self._meta.sync(znodes.SHARDS)
                found = await zk_patterns.find(self._meta, znodes.SHARDS)
                if found is None:
                    await self._meta.multi([Create(znodes.SHARDS, znodes.encode_shards(wanted))])
                    return wanted
                stored = znodes.decode_shards(found[0])
            except znodes.BadZnode as error:
                log.error("groups are not coordinated: %s; repair or delete this znode", error)
                await self._clock.sleep(ALARM_S)
            except SessionClosed:
                raise
            except MetaError as error:
                log.info("reading the number of shards: %r; again", error)
                await self._clock.sleep(READ_AGAIN_S)
            else:
                if stored != wanted:
                    log.warning("%s says %d; the setting of %d shards is ignored", znodes.SHARDS, stored, wanted)
                return stored

    # lags

    async def _watch_lags(self) -> None:
        while not self._stopping:
            self._lags_wanted.clear()
            await self._look_up_lags()
            await self._clock.sleep(LAGS_APART_S)
            try:
                async with asyncio.timeout(self._settings.lag_interval_s):
                    await self._lags_wanted.wait()
            except TimeoutError:
                pass

    async def _look_up_lags(self) -> None:
        """Offsets and log ends of one moment: a group that commits steadily would seem never behind an older end."""
        committed = list(islice(self._committed(), self._settings.lag_partitions_max))
        ends = await self._ends.find(list(dict.fromkeys(tp for _, tp, _ in committed)))
        self.lags = {}
        for group_id, tp, offset in committed:
            end = ends[tp]
            if end is not None:
                self.lags.setdefault(group_id, {})[tp] = max(0, end - offset)

    def _committed(self) -> Iterator[tuple[str, TopicPartition, int]]:
        """Groups that are served here with their offsets, in the order in which metrics show them."""
        served = {
            name: each for term in self.terms.values() if term.acting for name, each in term.machine.groups.items()
        }
        for group_id in sorted(served):
            for tp, found in sorted(served[group_id].offsets.items()):
                yield group_id, tp, found.offset

    # news

    def _on_session(self, state: SessionState) -> None:
        """A17.02: everything that was in memory goes with the term; the electors begin anew."""
        if state is SessionState.LOST:
            for term in self.terms.values():
                term.end("the ZooKeeper session expired")

    def _notice_pause(self) -> None:
        seconds = self._pauses.tick(self._clock.now())
        if seconds is not None:
            log.warning("this process did not run for %.3f s", seconds)
            for term in self.terms.values():
                term.paused(seconds)

    async def _watch_pauses(self) -> None:
        while True:
            self._notice_pause()
            await self._clock.sleep(PAUSE_S / 10)
