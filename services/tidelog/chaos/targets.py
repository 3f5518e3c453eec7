"""What a fault is aimed at, in words: `leader of 0`, `standby controller`, `controller and leader of 0`, `broker-1`.

`parse` is pure, so that a scenario with a target that no cluster can have is refused before anything starts. `resolve` looks
at the cluster when the fault is due: a role that nobody fills then is an error, not a pass.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tidelog.chaos.faults.base import Bed, Fault, to_the_end
from tidelog.cluster.api import (
    BROKER,
    CLIENT,
    CONTROLLER,
    KINDS,
    ZOOKEEPER,
    ClusterError,
    State,
    broker_name,
    process_name,
)
from tidelog.ids import NO_LEADER
from tidelog.names import suggestion

EVERYTHING: Final = "everything"
_AND: Final = " and "
_PROCESS: Final = re.compile(rf"({'|'.join(KINDS)})-(\d+)")

Find = Callable[[Bed, str], Awaitable[Sequence[str]]]


@dataclass(frozen=True, slots=True)
class Role:
    spelling: str
    """With a capital word where the argument stands."""
    kind: str
    find: Find

    @property
    def pattern(self) -> re.Pattern[str]:
        argument = self.spelling.replace("N", r"(\d+)").replace("GROUP", r"(\S+)")
        return re.compile(argument)


@dataclass(frozen=True, slots=True)
class Part:
    role: Role
    argument: str


@dataclass(frozen=True, slots=True)
class Target:
    text: str
    parts: tuple[Part, ...]

    @property
    def kinds(self) -> frozenset[str]:
        """Of process that it may turn out to be."""
        kinds = {part.role.kind for part in self.parts}
        return frozenset(KINDS if EVERYTHING in kinds else kinds)


def parse(text: str) -> Target:
    """ValueError says what a target may look like."""
    return Target(text, tuple(_part(word.strip()) for word in text.split(_AND)))


def check_hits(fault: type[Fault], target: Target) -> None:
    """ValueError when the fault cannot be aimed at such a process."""
    if wrong := target.kinds - fault.hits:
        can = ", ".join(f"{kind}s" for kind in (*KINDS, CLIENT) if kind in fault.hits)
        raise ValueError(f"fault {fault.name!r} hits {can}; {target.text!r} is a {' or '.join(sorted(wrong))}")


async def resolve(target: Target, bed: Bed) -> tuple[str, ...]:
    """The names of the processes, each once. ClusterError when a part of the target is not there now."""
    found: dict[str, None] = {}
    for part in target.parts:
        names = await part.role.find(bed, part.argument)
        if not names:
            raise ClusterError(f"target {target.text!r}: the cluster has none now")
        found |= dict.fromkeys(names)
    return tuple(found)


def _part(text: str) -> Part:
    if found := _PROCESS.fullmatch(text):
        return Part(Role(text, found[1], _named), text)
    for role in ROLES:
        if matched := role.pattern.fullmatch(text):
            return Part(role, matched[1] if matched.re.groups else "")
    near = suggestion(text, [role.spelling for role in ROLES])
    raise ValueError(f"no target {text!r}{near or '; one is ' + ', '.join(role.spelling for role in ROLES)}")


async def _named(bed: Bed, name: str) -> Sequence[str]:
    if name not in await to_the_end(bed.cluster.names):
        raise ClusterError(f"no process {name} in this cluster, which has {', '.join(bed.cluster.names())}")
    return [name]


async def _leader(bed: Bed, partition: str) -> Sequence[str]:
    leader, _ = await _replicas(bed, int(partition))
    return [leader]


async def _followers(bed: Bed, partition: str) -> Sequence[str]:
    _, followers = await _replicas(bed, int(partition))
    return followers


async def _follower(bed: Bed, partition: str) -> Sequence[str]:
    followers = await _followers(bed, partition)
    return followers and [followers[bed.rand.randrange(len(followers))]]


async def _replicas(bed: Bed, partition: int) -> tuple[str, list[str]]:
    topic = await bed.admin.describe_topic(bed.topic)
    found = next((p for p in topic.partitions if p.partition == partition), None)
    if found is None:
        raise ClusterError(f"topic {bed.topic!r} has {len(topic.partitions)} partitions, none with number {partition}")
    if found.leader == NO_LEADER:
        raise ClusterError(f"{bed.topic}-{partition} has no leader now")
    return broker_name(found.leader), sorted(broker_name(r) for r in found.replicas if r != found.leader)


async def _active(bed: Bed, _: str) -> Sequence[str]:
    number = (await bed.admin.describe_cluster()).controller_id
    return [] if number < 0 else [process_name(CONTROLLER, number)]


async def _standby(bed: Bed, _: str) -> Sequence[str]:
    active = await _active(bed, _)
    return [name for name in await _running(bed, CONTROLLER) if name not in active]


async def _coordinator(bed: Bed, group: str) -> Sequence[str]:
    address = await bed.admin.groups.coordinator(group)
    endpoints = await to_the_end(bed.cluster.endpoints)
    # A name of this machine is not spelt alike everywhere, and no two brokers share a port of it.
    return [name for name, each in endpoints.items() if each.port == address.port]


def _in_mode(*modes: str) -> Find:
    async def find(bed: Bed, _: str) -> Sequence[str]:
        running = await _running(bed, ZOOKEEPER)
        return [name for name in running if await to_the_end(bed.cluster.zookeeper_mode, name) in modes]

    return find


async def _running(bed: Bed, kind: str) -> list[str]:
    rows = await to_the_end(bed.cluster.status)
    return [row.name for row in rows if row.kind == kind and row.state is State.RUNNING]


def _all(kind: str) -> Find:
    async def find(bed: Bed, _: str) -> Sequence[str]:
        return await to_the_end(bed.cluster.names, kind)

    return find


def _some(kind: str, how_many: Callable[[int], int]) -> Find:
    """So many of a kind as `how_many` says of their number, drawn at random."""

    async def find(bed: Bed, _: str) -> Sequence[str]:
        names = list(await to_the_end(bed.cluster.names, kind))
        return [names.pop(bed.rand.randrange(len(names))) for _ in range(how_many(len(names)))]

    return find


def _one(_: int) -> int:
    return 1


def _minority(count: int) -> int:
    return (count - 1) // 2


def _majority(count: int) -> int:
    return count // 2 + 1


async def _client(bed: Bed, _: str) -> Sequence[str]:
    return [CLIENT]


async def _everything(bed: Bed, _: str) -> Sequence[str]:
    return await to_the_end(bed.cluster.names)


ROLES: Final = (
    Role("leader of N", BROKER, _leader),
    Role("follower of N", BROKER, _follower),
    Role("followers of N", BROKER, _followers),
    Role("coordinator of GROUP", BROKER, _coordinator),
    Role("controller", CONTROLLER, _active),
    Role("active controller", CONTROLLER, _active),
    Role("standby controller", CONTROLLER, _standby),
    Role("zookeeper leader", ZOOKEEPER, _in_mode("leader", "standalone")),
    Role("zookeeper follower", ZOOKEEPER, _in_mode("follower")),
    *(
        role
        for kind in KINDS
        for role in (
            Role(f"all {kind}s", kind, _all(kind)),
            Role(f"any {kind}", kind, _some(kind, _one)),
            Role(f"minority {kind}s", kind, _some(kind, _minority)),
            Role(f"majority {kind}s", kind, _some(kind, _majority)),
        )
    ),
    Role(CLIENT, CLIENT, _client),
    Role(f"{CLIENT}s", CLIENT, _client),
    Role(EVERYTHING, EVERYTHING, _everything),
)
