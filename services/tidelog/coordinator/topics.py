"""All topics and how many partitions each has, watched for every shard that this broker coordinates (A6.04, A8.02, A11)."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from tidelog.coordinator.model import UNREADABLE, TopicInfo
from tidelog.ports.clock import Clock
from tidelog.ports.meta import Meta, MetaError, SessionClosed, Stat
from tidelog.ports.recorder import Znode, led_on
from tidelog.runtime import zk_patterns
from tidelog.wire import znodes

log = logging.getLogger(__name__)

READ_AGAIN_S: Final = 0.1
RECONCILE_S: Final = 30.0
"""The names are read again at least this often, whatever the watch says (HOLE-41)."""

Listener = Callable[[Mapping[str, TopicInfo]], None]


class TopicWatcher:
    """One watch on /brokers/topics and one on each topic. What fired is read again, and nothing else.

    It reads nothing before somebody asks: a broker that coordinates no group leaves no watches in the store.

    A topic is gone when /brokers/topics, read after a sync, does not name it. One whose znode cannot be read stays as it was
    read last: a deleted topic costs every group its offsets.
    """

    def __init__(self, meta: Meta, clock: Clock, on_damage: Callable[[int], None] = lambda _: None) -> None:
        """`on_damage` is called with the number of topics whose znodes cannot be read, after each read."""
        self._meta = meta
        self._clock = clock
        self._on_damage = on_damage
        self._damaged: set[str] = set()
        self._topics: dict[str, TopicInfo] = {}
        self._names: set[str] = set()
        self._watched: set[str] = set()
        """Names of topics with a watch that has not fired."""
        self._names_watched = False
        self._listeners: dict[Listener, None] = {}
        self._news = asyncio.Event()
        self._passes = 0
        self._passed = asyncio.Event()

    @property
    def known(self) -> Mapping[str, TopicInfo]:
        """All topics as they were read last."""
        return self._topics

    async def current(self) -> Mapping[str, TopicInfo]:
        """All topics that were there when this was called, or later."""
        awaited = self._passes + 2  # the pass that is under way may have begun before
        self._names_watched = False
        while self._passes < awaited:
            self._news.set()
            self._passed.clear()
            await self._passed.wait()
        return self._topics

    def listen(self, listener: Listener) -> None:
        """Called with all topics after each change, until `forget`. If one topic has changed, its znode is the present cause."""
        self._listeners[listener] = None

    def forget(self, listener: Listener) -> None:
        self._listeners.pop(listener, None)

    async def run(self) -> None:
        await self._news.wait()
        while True:
            self._news.clear()
            try:
                await self._read()
            except SessionClosed:
                return  # the process is ending
            except MetaError as error:
                log.info("cannot read the topics: %r; again", error)
                await self._clock.sleep(READ_AGAIN_S)
                self._news.set()
                continue
            self._passes += 1
            self._passed.set()
            try:
                async with asyncio.timeout(RECONCILE_S):
                    await self._news.wait()
            except TimeoutError:
                self._names_watched = False

    async def _read(self) -> None:
        await self._meta.sync(znodes.TOPICS)
        topics = dict(self._topics)
        if not self._names_watched:
            self._names_watched = True
            names = await self._read_names()
            for gone in topics.keys() - names:
                del topics[gone]
            self._watched &= names
            self._damaged &= names
            self._names = names
        fired = sorted(self._names - self._watched)
        self._watched.update(fired)
        paths = [znodes.topic_path(name) for name in fired]
        try:
            found = await zk_patterns.get_each(self._meta, paths, self._topic_fired)
        except MetaError:
            self._watched.difference_update(fired)
            raise
        versions = dict.fromkeys(self._topics.keys() - topics.keys(), znodes.NO_VERSION)
        for name, node in zip(fired, found, strict=True):
            if node is None:  # gone since: the names, read once more, say so
                self._watched.discard(name)
                self._names_fired()
            else:
                topics[name] = self._decoded(name, *node) or topics.get(name, UNREADABLE)
                versions[name] = node[1].version
        self._on_damage(len(self._damaged))
        changed = sorted(name for name in versions if topics.get(name) != self._topics.get(name))
        if changed:
            self._topics = topics
            # Of several it is not known which of them matters to a group.
            one = Znode(znodes.topic_path(changed[0]), versions[changed[0]]) if len(changed) == 1 else None
            with led_on(one):
                for listener in list(self._listeners):
                    listener(topics)

    async def _read_names(self) -> set[str]:
        try:
            return set(await self._meta.children(znodes.TOPICS, self._names_fired))
        except MetaError:
            self._names_watched = False
            raise

    def _names_fired(self) -> None:
        self._names_watched = False
        self._news.set()

    def _topic_fired(self, path: str) -> None:
        self._watched.discard(path.rpartition("/")[2])
        self._news.set()

    def _decoded(self, name: str, data: bytes, stat: Stat) -> TopicInfo | None:
        try:
            assignment = znodes.decode_topic(name, data)
        except znodes.BadZnode as error:
            log.error("topic %s stays as it was known last: %s; repair this znode", name, error)
            self._damaged.add(name)
            return None
        self._damaged.discard(name)
        return TopicInfo(assignment.topic_id, len(assignment.partitions), stat.czxid)
