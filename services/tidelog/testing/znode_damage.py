"""Znodes that hold rubbish for a while: an operator's script, a bad disk or a foreign program has written over them.

Some runs have this fault beside their others. A process that reads such a znode does not act on it, and deletes nothing because
of it. Later the old content comes back, as it was or in another form; what the cluster has written over the rubbish by then
stays.

An operator may also delete what a process holds by its session, which lives on.
"""

import json
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from tidelog.testing import goals
from tidelog.testing.rand import seeded
from tidelog.testing.sim_breaking import Breaking
from tidelog.testing.sim_cluster import SimCluster
from tidelog.testing.sim_node import SHARDS, ZOOKEEPER
from tidelog.wire import znodes

LASTS_S: Final = (0.2, 5.0)

WEIGHTS: Final = {"topic": 3, "registration": 2}
"""Kinds that are drawn more often than others: most follows from what becomes of these."""

PLACES: Final = ("registration", "coordinator")
"""Kinds of ephemeral znodes, which may also be deleted. Another fault deletes that of the controller."""

_WRONG: Final[tuple[object, ...]] = (None, "x", -7, 1.5, [], [["x"]], {}, {"0": "x"})
"""Contents of a field of another type, or out of its range."""

Decode = Callable[[bytes], object]


class Kind(NamedTuple):
    name: str
    decode: Decode
    """Reads such a znode, as the cluster does."""


class ZnodeDamage(Breaking):
    """Draws from a stream of its own: runs without this fault are what they were before there was one."""

    def __init__(self, cluster: SimCluster, share: float) -> None:
        """`share` is that of the runs with this fault."""
        super().__init__(cluster, seeded(cluster.seed, "damaged znodes"))
        self.drawn = self._rand.random() < share

    def damage(self) -> bool:
        zookeeper = self._cluster.zookeeper
        found: dict[str, list[tuple[str, bytes, Decode]]] = {}
        for path, node in zookeeper.dump().items():
            kind = kind_of(path)
            if kind is not None and path not in zookeeper.damaged and not _is_rubbish(node.data, kind.decode):
                found.setdefault(kind.name, []).append((path, node.data, kind.decode))
        if not found:
            return False
        name = self._one_of([name for name in sorted(found) for _ in range(WEIGHTS.get(name, 1))])
        path, data, decode = self._one_of(found[name])
        if name in PLACES and self._maybe():
            return self._delete(path)
        rubbish, seconds = self._rubbish(data, decode), self._between(*LASTS_S)
        self._say(f"{path} holds {rubbish!r} in zookeeper", ZOOKEEPER)
        zookeeper.damage(path, rubbish)
        if self._maybe():
            # The next one has to read it.
            deposed = self._one_of((znodes.CONTROLLER, *map(znodes.coordinator_path, range(SHARDS))))
            self._later(seconds * self._rand.random(), partial(self._remove, deposed))
        self._later(seconds, partial(self._repair, path))
        return True

    def _delete(self, path: str) -> bool:
        """The session goes on without what it has made."""
        zookeeper = self._cluster.zookeeper
        node = zookeeper.find(path)
        self._cluster.observer.reached[goals.SESSION_LEFT] += (
            node is not None and node.stat.ephemeral_owner in zookeeper.live_sessions
        )
        self._remove(path)
        return True

    def heal(self) -> None:
        for path in self._cluster.zookeeper.damaged:
            self._repair(path)

    def _repair(self, path: str) -> None:
        zookeeper = self._cluster.zookeeper
        node = zookeeper.find(path)
        if path not in zookeeper.damaged or node is None:
            return
        self._note()
        self._say(f"{path} is repaired in zookeeper", ZOOKEEPER, mends=True)
        zookeeper.repair(path, node.data if self._maybe() else _as_a_tool_writes(node.data))

    def _note(self) -> None:
        reached = self._cluster.observer.reached
        reached[goals.NO_TAKE_OVER] += not any(
            node.controller is not None and node.controller.active for node in self._cluster.controllers
        )
        unreadable = (
            node.registry.get_sample_value("tidelog_coordinator_unreadable_topics") for node in self._cluster.brokers
        )
        reached[goals.UNREADABLE] += any(unreadable)

    def _rubbish(self, data: bytes, decode: Decode) -> bytes:
        """Makes what no reader understands: one that did would have to believe it."""
        makes: tuple[Callable[[bytes], bytes], ...] = (
            self._truncated,
            lambda _: b"",
            self._of_wrong_type,
            lambda data: json.dumps({"version": 99, "content": json.loads(data)}).encode(),
            lambda _: b"\x00\xff\x80",
            lambda _: b"null",
        )
        while True:
            rubbish = self._one_of(makes)(data)
            if _is_rubbish(rubbish, decode):
                return rubbish

    def _truncated(self, data: bytes) -> bytes:
        return data[: self._rand.randrange(len(data))]

    def _of_wrong_type(self, data: bytes) -> bytes:
        fields = json.loads(data)
        if not isinstance(fields, dict):
            return b"x"
        return json.dumps({**fields, self._one_of(sorted(fields)): self._one_of(_WRONG)}).encode()


def kind_of(path: str) -> Kind | None:
    """None where nothing is read but the names."""
    match path.split("/")[1:]:
        case ["brokers", "topics", topic]:
            return Kind("topic", partial(znodes.decode_topic, topic))
        case ["brokers", "topics", topic, "partitions", partition, "state"]:
            return Kind("state", partial(znodes.decode_state, topic, int(partition)))
        case ["brokers", "ids", broker]:
            return Kind("registration", partial(znodes.decode_broker, int(broker)))
        case ["brokers", "directories", broker]:
            return Kind("directories", partial(znodes.decode_directories, int(broker)))
        case ["config", "topics", topic]:
            return Kind("config", partial(znodes.decode_topic_config, topic))
        case ["controller"]:
            return Kind("controller", znodes.decode_controller)
        case ["controller_epoch"]:
            return Kind("controller epoch", znodes.decode_controller_epoch)
        case ["latest_producer_id_block"]:
            return Kind("producer ids", znodes.decode_producer_ids)
        case ["admin", "placement"]:
            return Kind("placement", znodes.decode_placement)
        case ["consumers", "coordinator"] | ["consumers", "shards", _, "coordinator"]:
            return Kind("coordinator", znodes.decode_coordinator)
        case ["consumers", "coordinator_epoch"] | ["consumers", "shards", _, "epoch"]:
            return Kind("coordinator epoch", znodes.decode_controller_epoch)
        case ["consumers", "shards"]:
            return Kind("shards", znodes.decode_shards)
        case ["consumers", group]:
            return Kind("group", partial(znodes.decode_head, group))
        case ["consumers", _, "owners", _, _]:
            return Kind("owner", partial(znodes.decode_owner, path))
        case ["consumers", _, "offsets", _, _]:
            return Kind("offset", partial(znodes.decode_offset, path))
    return None


def _is_rubbish(data: bytes, decode: Decode) -> bool:
    try:
        decode(data)
    except znodes.BadZnode:
        return True
    return False


def _as_a_tool_writes(data: bytes) -> bytes:
    """The same content in another form."""
    return json.dumps(json.loads(data), indent=1, sort_keys=True).encode()
