"""The actions of stories: their names, their parameters, and what each does to the cluster."""

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tidelog.chaos.quantities import share
from tidelog.chaos.yaml_nodes import Node
from tidelog.errors import TidelogError
from tidelog.lab.cast import Cast
from tidelog.lab.clients import ACKS, Sends
from tidelog.lab.cluster import LabCluster
from tidelog.lab.groups import SESSION_S
from tidelog.names import validate_group_id

RECORDS_MAX: Final = 10_000
RATE_MAX: Final = 1_000
MEMBERS_MAX: Final = 20
SECONDS_MAX: Final = 3_600.0

Values = Mapping[str, Any]
Played = Sends | Coroutine[Any, Any, Any] | None
"""Records that are on their way, or what goes on in the background."""

PROCESSES: Final = "process"
LINKS: Final = "link"
RECORDS: Final = "records"
GROUPS: Final = "groups"
TOPICS: Final = "topics"


@dataclass(frozen=True, slots=True)
class Parameter:
    kind: str
    """The field by which the page asks for it; docs/internals/page.md has the kinds."""
    read: Callable[[Node, Cast], Any]
    """Reads a value. ScenarioError."""
    value: Any = None
    """A value to begin with."""
    choices: tuple[str, ...] = ()
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Action:
    """The names of parameters that hold a process are `process`, `from` and `to`."""

    group: str
    """The heading under which the page has it."""
    play: Callable[[LabCluster, Values], Played]
    """Roles in its values are resolved."""
    needs: Mapping[str, Parameter] = field(default_factory=dict)
    may: Mapping[str, Parameter] = field(default_factory=dict)
    labels: str = ""
    """Kind of what `as` names: `process`, `sends` or `result`; empty: nothing."""
    about: str = ""
    """Says what its name does not."""
    tell: Callable[[Cast, Values], None] = lambda cast, values: None
    """Tells later actions what this one makes."""


def _brokers_of(node: Node, cast: Cast) -> tuple[int, ...]:
    found = tuple(cast.broker(each) for each in node.items())
    if not found or len(set(found)) < len(found):
        raise node.error(f"{node.what}: a list of different brokers, like [0, 1, 2]")
    return found


def _group_of(node: Node, cast: Cast) -> str:
    try:
        return validate_group_id(node.text())
    except TidelogError as error:
        raise node.error(f"{node.what}: {error.message}") from None


def _seconds_of(node: Node, cast: Cast) -> float:
    found = node.seconds()
    if found > SECONDS_MAX:
        raise node.error(f"{node.what}: at most {SECONDS_MAX:g} s")
    return found


def _session_of(node: Node, cast: Cast) -> float:
    found = node.seconds()
    if not 1 <= found <= 60:
        raise node.error(f"{node.what}: from 1 s to 60 s")
    return found


def settings(node: Node, cast: Cast) -> dict[str, str]:
    """Reads settings of a topic. What is wrong with one is said when the cluster refuses it."""
    return {key: each.written for key, each in node.mapping().items()}


_PROCESS: Final = Parameter("process", lambda node, cast: cast.process(node))
_ANY_PROCESS: Final = Parameter("process", lambda node, cast: cast.any_process(node))
_AGENT: Final = Parameter("process", lambda node, cast: cast.process(node), choices=("agent",))
_END: Final = Parameter("end", lambda node, cast: cast.end_of_link(node))
_TOPIC: Final = Parameter("topic", lambda node, cast: cast.topic(node))
_PARTITION: Final = Parameter("partition", lambda node, cast: cast.partition(node))
_BROKER: Final = Parameter("broker", lambda node, cast: cast.broker(node))
_BROKERS: Final = Parameter("brokers", _brokers_of)
_NAME: Final = Parameter("text", lambda node, cast: node.text())
_GROUP: Final = Parameter("group", _group_of, "readers")
_FLAG: Final = Parameter("flag", lambda node, cast: node.flag())
_NUMBER: Final = Parameter("number", lambda node, cast: node.whole(0, 1_000))
_RECORDS: Final = Parameter("number", lambda node, cast: node.whole(1, RECORDS_MAX), 10)
_RATE: Final = Parameter("number", lambda node, cast: node.number(0.1, RATE_MAX), 50, unit="records/s")
_ACKS: Final = Parameter("choice", lambda node, cast: node.choice(ACKS), "all", ACKS)
_SECONDS: Final = Parameter("seconds", _seconds_of, 1, unit="s")
_MEMBERS: Final = Parameter("number", lambda node, cast: node.whole(1, MEMBERS_MAX), 1)
_SESSION: Final = Parameter("seconds", _session_of, SESSION_S, unit="s")
_JUMP: Final = Parameter("number", lambda node, cast: node.number(-1e6, 1e6), 60, unit="s")
_LOSS: Final = Parameter("text", lambda node, cast: node.parsed(share), "20%")
_SETTINGS: Final = Parameter("settings", settings)


def _of_process(play: Callable[[LabCluster, str], None], *, zookeeper: bool = False) -> Action:
    def played(cluster: LabCluster, values: Values) -> None:
        play(cluster, values["process"])

    return Action(PROCESSES, played, needs={"process": _ANY_PROCESS if zookeeper else _PROCESS}, labels="process")


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
        PROCESSES,
        lambda cluster, values: cluster.kill_in_write(values["process"], applied=values["arrives"]),
        needs={"process": _PROCESS, "arrives": _FLAG},
        labels="process",
        about="it dies in its next write to ZooKeeper, before it hears the answer",
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
        LINKS,
        lambda cluster, values: cluster.cut(values["from"], values["to"], both=not values.get("one way", False)),
        needs={"from": _END, "to": _END},
        may={"one way": _FLAG},
    ),
    "isolate": _of_process(LabCluster.isolate),
    "slow link": Action(
        LINKS,
        lambda cluster, values: cluster.slow_link(values["from"], values["to"], values["delay"]),
        needs={"from": _END, "to": _END, "delay": _SECONDS},
    ),
    "lossy link": Action(
        LINKS,
        lambda cluster, values: cluster.lossy_link(values["from"], values["to"], values["loss"]),
        needs={"from": _END, "to": _END, "loss": _LOSS},
    ),
    "heal": Action(
        LINKS,
        lambda cluster, values: cluster.heal(values.get("from"), values.get("to")),
        may={"from": _END, "to": _END},
    ),
    # disks and clocks
    "fill disk": _of_process(LabCluster.fill_disk),
    "slow disk": Action(
        PROCESSES,
        lambda cluster, values: cluster.slow_disk(values["process"], values["delay"]),
        needs={"process": _PROCESS, "delay": _SECONDS},
    ),
    "mend disk": _of_process(LabCluster.mend_disk),
    "jump clock": Action(
        PROCESSES,
        lambda cluster, values: cluster.jump_clock(values["process"], values["seconds"]),
        needs={"process": _PROCESS, "seconds": _JUMP},
        about="the calendar of the process moves; its timeouts do not notice",
    ),
    # topics
    "create topic": Action(
        TOPICS,
        _create,
        needs={"name": _NAME, "replicas": _BROKERS},
        may={"settings": _SETTINGS},
        labels="result",
        tell=_created,
    ),
    "delete topic": Action(
        TOPICS,
        lambda cluster, values: cluster.delete_topic(values["topic"]),
        needs={"topic": _TOPIC},
        labels="result",
        tell=_deleted,
    ),
    "alter topic": Action(
        TOPICS,
        lambda cluster, values: cluster.alter_topic(values["topic"], values["settings"]),
        needs={"topic": _TOPIC, "settings": _SETTINGS},
        labels="result",
    ),
    "reassign": Action(
        TOPICS,
        lambda cluster, values: cluster.reassign(values["partition"], values["brokers"]),
        needs={"partition": _PARTITION, "brokers": _BROKERS},
        labels="result",
    ),
    "elect": Action(
        TOPICS,
        lambda cluster, values: cluster.elect(
            values["partition"], unclean=values.get("unclean", False), broker=values.get("broker")
        ),
        needs={"partition": _PARTITION},
        may={"unclean": _FLAG, "broker": _BROKER},
        labels="result",
    ),
    "release veto": Action(
        TOPICS,
        lambda cluster, values: cluster.release_veto(values["partition"]),
        needs={"partition": _PARTITION},
        labels="result",
        about="a replica that lost power may lead again, at the price of records",
    ),
    # groups
    "join": Action(
        GROUPS,
        _joined,
        needs={"group": _GROUP, "topic": _TOPIC},
        may={"members": _MEMBERS, "session": _SESSION},
        tell=_joins,
    ),
    "take time": Action(
        GROUPS,
        lambda cluster, values: cluster.take(values["process"], values["seconds"]),
        needs={"process": _AGENT, "seconds": _SECONDS},
        about="the application takes so long for each batch of records",
    ),
    # records
    "produce": Action(
        RECORDS,
        _produce,
        needs={"topic": _TOPIC},
        may={"records": _RECORDS, "acks": _ACKS, "partition": _NUMBER},
        labels="sends",
    ),
    "load": Action(RECORDS, _load, needs={"topic": _TOPIC, "rate": _RATE}, may={"acks": _ACKS}, labels="sends"),
    "stop load": Action(RECORDS, lambda cluster, values: cluster.stop_load(values["topic"]), needs={"topic": _TOPIC}),
    "read": Action(
        RECORDS,
        lambda cluster, values: cluster.read(values["topic"], values.get("partition")),
        needs={"topic": _TOPIC},
        may={"partition": _NUMBER},
        labels="result",
    ),
}
