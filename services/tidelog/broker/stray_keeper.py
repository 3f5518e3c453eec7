"""Deletes strays a day after they were set aside: parts of logs then, and logs where ZooKeeper confirms that this broker has
no such replica."""

import logging
from typing import Final

from tidelog.broker.replica_manager import ReplicaManager
from tidelog.ports.clock import Clock
from tidelog.ports.meta import Meta, MetaError, SessionClosed
from tidelog.runtime.zk_patterns import find
from tidelog.storage.strays import Stray
from tidelog.wire.znodes import BadZnode, decode_topic, topic_path

_log = logging.getLogger(__name__)

KEPT_S: Final = 24 * 3600.0
"""Time in one life of the broker for which a stray is kept: a mistake is noticed and undone in it."""
CHECK_S: Final = 600.0


class StrayKeeper:
    """A list of replicas alone deletes nothing: it may be forged, or made from a part of the state."""

    def __init__(self, broker_id: int, manager: ReplicaManager, meta: Meta, clock: Clock) -> None:
        self._broker_id = broker_id
        self._manager = manager
        self._meta = meta
        self._clock = clock
        self._since: dict[str, float] = {}
        """Monotonic time at which each folder was first seen in this life, or since a note of another past was removed."""

    async def run(self) -> None:
        while True:
            self._see()
            await self._clock.sleep(CHECK_S)
            if self._manager.another_past:
                self._since.clear()  # such a store confirms nothing
            for stray in self._manager.strays:
                if (stray.named or stray.cut_at is not None) and self._clock.now() - self._since.get(
                    stray.folder, self._clock.now()
                ) >= KEPT_S:
                    try:
                        await self._judge(stray)
                    except SessionClosed:
                        return
                    except (MetaError, BadZnode) as error:
                        _log.warning("%s is kept: %s", stray.folder, error)

    def _see(self) -> None:
        now = self._clock.now()
        self._since = {stray.folder: self._since.get(stray.folder, now) for stray in self._manager.strays}

    async def _judge(self, stray: Stray) -> None:
        if stray.cut_at is not None:
            self._manager.delete_stray(stray)
            return
        key, path = stray.key, topic_path(stray.key.topic)
        await self._meta.sync(path)
        node = await find(self._meta, path)
        topic = None if node is None else decode_topic(key.topic, node[0])
        if self._manager.strays.find(key) is not stray:
            return  # it was listed again meanwhile
        if topic is None or topic.topic_id != key.topic_id:
            self._manager.delete_stray(stray)
        elif key.partition < len(topic.partitions) and self._broker_id in topic.partitions[key.partition]:
            _log.error("%s is kept: ZooKeeper says that this broker has a replica of %s", stray.folder, key)
            del self._since[stray.folder]
        else:
            self._manager.delete_stray(stray)
