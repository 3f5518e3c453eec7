"""The actions of stories: their names, their parameters, and what each does to the cluster."""

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tidelog.chaos.yaml_nodes import Node
from tidelog.lab.cast import Cast
from tidelog.lab.clients import ACKS, Sends
from tidelog.lab.cluster import LabCluster
from tidelog.lab.groups import SESSION_S

RECORDS_MAX: Final = 10_000
RATE_MAX: Final = 1_000
MEMBERS_MAX: Final = 20
SECONDS_MAX: Final = 3_600.0

Values = Mapping[str, Any]
Parameter = Callable[[Node, Cast], Any]
"""Reads the value of a parameter. ScenarioError."""
Played = Sends | Coroutine[Any, Any, Any] | None
"""Records that are on their way, or what goes on in the background."""


@dataclass(frozen=True, slots=True)
class Action:
    """The names of parameters that hold a process are `process`, `from` and `to`."""

    play: Callable[[LabCluster, Values], Played]
    """Roles in its values are resolved."""
    needs: Mapping[str, Parameter] = field(default_factory=dict)
    may: Mapping[str, Parameter] = field(default_factory=dict)
    labels: str = ""
    """Kind of what `as` names: `process`, `sends` or `result`; empty: nothing."""
    tell: Callable[[Cast, Values], None] = lambda cast, values: None
    """Tells later actions what this one makes."""


def _process(node: Node, cast: Cast) -> str:
    return cast.process(node)


def _any_process(node: Node, cast: Cast) -> str:
    return cast.any_process(node)


def _end(node: Node, cast: Cast) -> str:
    return cast.end_of_link(node)


def _topic(node: Node, cast: Cast) -> str:
    return cast.topic(node)


def _partition(node: Node, cast: Cast) -> Any:
    return cast.partition(node)


def _broker(node: Node, cast: Cast) -> int:
    return cast.broker(node)


def _brokers(node: Node, cast: Cast) -> tuple[int, ...]:
    found = tuple(cast.broker(each) for each in node.items())
    if not found or len(set(found)) < len(found):
        raise node.error(f"{node.what}: a list of different brokers, like [0, 1, 2]")
    return found


def _records(node: Node, cast: Cast) -> int:
    return node.whole(1, RECORDS_MAX)


def _rate(node: Node, cast: Cast) -> float:
    return node.number(0.1, RATE_MAX)


def _acks(node: Node, cast: Cast) -> str:
    return node.choice(ACKS)


def _number(node: Node, cast: Cast) -> int:
    return node.whole(0, 1_000)


def _flag(node: Node, cast: Cast) -> bool:
    return node.flag()


def _seconds(node: Node, cast: Cast) -> float:
    found = node.seconds()
    if found > SECONDS_MAX:
        raise node.error(f"{node.what}: at most {SECONDS_MAX:g} s")
    return found


def _members(node: Node, cast: Cast) -> int:
    return node.whole(1, MEMBERS_MAX)


def _session(node: Node, cast: Cast) -> float:
    found = node.seconds()
    if not 1 <= found <= 60:
        raise node.error(f"{node.what}: from 1 s to 60 s")
    return found


def _jump(node: Node, cast: Cast) -> float:
    return node.number(-1e6, 1e6)


def settings(node: Node, cast: Cast) -> dict[str, str]:
    """Reads settings of a topic. What is wrong with one is said when the cluster refuses it."""
    return {key: each.written for key, each in node.mapping().items()}


def _of_process(play: Callable[[LabCluster, str], None], *, zookeeper: bool = False) -> Action:
    def played(cluster: LabCluster, values: Values) -> None:
        play(cluster, values["process"])

    return Action(played, needs={"process": _any_process if zookeeper else _process}, labels="process")


def _produce(cluster: LabCluster, values: Values) -> Sends:
    return cluster.produce(
        values["topic"], values.get("records", 1), values.get("acks", "all"), values.get("partition")
    )


def _load(cluster: LabCluster, values: Values) -> Sends:
    return cluster.load(values["topic"], values["rate"], values.get("acks", "all"))


def _create(cluster: LabCluster, values: Values) -> Played:
    copies = len(values["replicas"])
    wanted = {"min.insync.replicas": str(min(2, copies)), **values.get("settings", {})}
    return cluster.create_topic(values["name"], 1, copies, [values["replicas"]], wanted)


def _created(cast: Cast, values: Values) -> None:
    cast.topics[values["name"]] = 1


def _deleted(cast: Cast, values: Values) -> None:
    del cast.topics[values["topic"]]


def _joined(cluster: LabCluster, values: Values) -> None:
    cluster.join(values["group"], (values["topic"],), values.get("members", 1), values.get("session", SESSION_S))


def _joins(cast: Cast, values: Values) -> None:
    for _ in range(values.get("members", 1)):
        cast.agents.append(f"agent-{len(cast.agents) + 1}")
    if values["group"] not in cast.groups:
        cast.groups.append(values["group"])


ACTIONS: Final[Mapping[str, Action]] = {
    # processes
    "kill": _of_process(LabCluster.kill, zookeeper=True),
    "kill in write": Action(
        lambda cluster, values: cluster.kill_in_write(values["process"], applied=values["arrives"]),
        needs={"process": _process, "arrives": _flag},
        labels="process",
    ),
    "stop": _of_process(LabCluster.stop),
    "start": _of_process(LabCluster.start_process, zookeeper=True),
    "restart": _of_process(LabCluster.restart),
    "pause": _of_process(LabCluster.pause),
    "resume": _of_process(LabCluster.resume),
    "expire session": _of_process(LabCluster.expire),
    "lose power": _of_process(LabCluster.lose_power),
    # links
    "cut": Action(
        lambda cluster, values: cluster.cut(values["from"], values["to"], both=not values.get("one way", False)),
        needs={"from": _end, "to": _end},
        may={"one way": _flag},
    ),
    "isolate": _of_process(LabCluster.isolate),
    "slow link": Action(
        lambda cluster, values: cluster.slow_link(values["from"], values["to"], values["delay"]),
        needs={"from": _end, "to": _end, "delay": _seconds},
    ),
    "heal": Action(
        lambda cluster, values: cluster.heal(values.get("from"), values.get("to")), may={"from": _end, "to": _end}
    ),
    # disks and clocks
    "fill disk": _of_process(LabCluster.fill_disk),
    "slow disk": Action(
        lambda cluster, values: cluster.slow_disk(values["process"], values["delay"]),
        needs={"process": _process, "delay": _seconds},
    ),
    "mend disk": _of_process(LabCluster.mend_disk),
    "jump clock": Action(
        lambda cluster, values: cluster.jump_clock(values["process"], values["seconds"]),
        needs={"process": _process, "seconds": _jump},
    ),
    # topics
    "create topic": Action(
        _create,
        needs={"name": lambda node, cast: node.text(), "replicas": _brokers},
        may={"settings": settings},
        labels="result",
        tell=_created,
    ),
    "delete topic": Action(
        lambda cluster, values: cluster.delete_topic(values["topic"]),
        needs={"topic": _topic},
        labels="result",
        tell=_deleted,
    ),
    "alter topic": Action(
        lambda cluster, values: cluster.alter_topic(values["topic"], values["settings"]),
        needs={"topic": _topic, "settings": settings},
        labels="result",
    ),
    "reassign": Action(
        lambda cluster, values: cluster.reassign(values["partition"], values["brokers"]),
        needs={"partition": _partition, "brokers": _brokers},
        labels="result",
    ),
    "elect": Action(
        lambda cluster, values: cluster.elect(
            values["partition"], unclean=values.get("unclean", False), broker=values.get("broker")
        ),
        needs={"partition": _partition},
        may={"unclean": _flag, "broker": _broker},
        labels="result",
    ),
    "release veto": Action(
        lambda cluster, values: cluster.release_veto(values["partition"]),
        needs={"partition": _partition},
        labels="result",
    ),
    # groups
    "join": Action(
        _joined,
        needs={"group": lambda node, cast: node.text(), "topic": _topic},
        may={"members": _members, "session": _session},
        tell=_joins,
    ),
    "take time": Action(
        lambda cluster, values: cluster.take(values["process"], values["seconds"]),
        needs={"process": _process, "seconds": _seconds},
    ),
    # records
    "produce": Action(
        _produce,
        needs={"topic": _topic},
        may={"records": _records, "acks": _acks, "partition": _number},
        labels="sends",
    ),
    "load": Action(_load, needs={"topic": _topic, "rate": _rate}, may={"acks": _acks}, labels="sends"),
    "stop load": Action(lambda cluster, values: cluster.stop_load(values["topic"]), needs={"topic": _topic}),
    "read": Action(
        lambda cluster, values: cluster.read(values["topic"], values.get("partition")),
        needs={"topic": _topic},
        may={"partition": _number},
        labels="result",
    ),
}
