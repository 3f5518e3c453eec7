"""Names in a story, and what they stand for: processes, roles, topics, groups, and labels that earlier actions gave."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from tidelog.chaos.yaml_nodes import Node
from tidelog.ids import NO_LEADER, TopicPartition
from tidelog.lab.clients import ACKS, Clients
from tidelog.lab.cluster import LabError
from tidelog.lab.view import View
from tidelog.names import suggestion
from tidelog.testing.sim_node import ZOOKEEPER

_LEADER: Final = re.compile(r"leader of (.+)-(\d+)")
_COORDINATOR: Final = re.compile(r"coordinator of (.+)")
CONTROLLER: Final = "controller"
STANDBY: Final = "standby"
PRODUCERS: Final = tuple(Clients.name_of(acks) for acks in ACKS)


@dataclass(slots=True)
class Cast:
    """Names that an action of a story may use. Each method refuses, with its line, a name that stands for nothing."""

    brokers: int
    controllers: int
    topics: dict[str, int] = field(default_factory=dict)
    """Partitions by topic."""
    agents: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    """Kind of what an action gave a name to: `process`, `sends` or `result`."""

    @property
    def processes(self) -> list[str]:
        brokers = (f"broker-{number}" for number in range(self.brokers))
        controllers = (f"controller-{number}" for number in range(1, self.controllers + 1))
        return [*brokers, *controllers, *self.agents]

    def process(self, node: Node, more: Iterable[str] = ()) -> str:
        """A process by its name, by its role, or by a label. ScenarioError."""
        name = node.text()
        if name in self.processes or name in more or self.labels.get(name) == "process":
            return name
        if name in (CONTROLLER, STANDBY):
            return name
        if (found := _LEADER.fullmatch(name)) is not None:
            self._partition(node, found[1], int(found[2]))
            return name
        if (found := _COORDINATOR.fullmatch(name)) is not None:
            if found[1] not in self.groups:
                raise node.error(f"{node.what}: there is no group {found[1]!r} so far")
            return name
        known = [*self.processes, *more, *(label for label, kind in self.labels.items() if kind == "process")]
        roles = f"{CONTROLLER}, {STANDBY}, leader of TOPIC-NUMBER, coordinator of GROUP"
        near = suggestion(name, known)
        raise node.error(
            f"{node.what}: there is no process {name!r}{near} (there are {', '.join(known)}; roles: {roles})"
        )

    def any_process(self, node: Node) -> str:
        return self.process(node, (ZOOKEEPER,))

    def end_of_link(self, node: Node) -> str:
        return self.process(node, (ZOOKEEPER, *PRODUCERS))

    def topic(self, node: Node) -> str:
        name = node.text()
        if name not in self.topics:
            raise node.error(
                f"{node.what}: there is no topic {name!r}{suggestion(name, self.topics)} "
                f"(there are {', '.join(self.topics) or 'none'})"
            )
        return name

    def partition(self, node: Node) -> TopicPartition:
        topic, dash, number = node.text().rpartition("-")
        if not dash or not (number.isascii() and number.isdigit()):
            raise node.error(f"{node.what}: {node.text()!r} is no partition like events-0")
        return self._partition(node, topic, int(number))

    def _partition(self, node: Node, topic: str, number: int) -> TopicPartition:
        if number >= self.topics.get(topic, 0):
            known = ", ".join(f"{name}-0 to {name}-{count - 1}" for name, count in self.topics.items())
            raise node.error(f"{node.what}: there is no partition {topic}-{number} (there are {known or 'none'})")
        return TopicPartition(topic, number)

    def broker(self, node: Node) -> int:
        return node.whole(0, self.brokers - 1)

    def labelled(self, node: Node, kind: str) -> str:
        name = node.text()
        if self.labels.get(name) != kind:
            known = [label for label, its in self.labels.items() if its == kind]
            raise node.error(f"{node.what}: {name!r} is no label of an action (there are {', '.join(known) or 'none'})")
        return name


def resolved(name: str, view: View, labels: dict[str, str]) -> str:
    """Returns the process that has a role now, or that a label stands for. LabError: none has it."""
    if name in labels:
        return labels[name]
    if name == CONTROLLER:
        if not view.controller:
            raise LabError("no process acts as controller now")
        return view.controller
    if name == STANDBY:
        states = view.processes()
        for each in states:
            if each.startswith("controller-") and each != view.controller and states[each] == "up":
                return each
        raise LabError("there is no standby controller now")
    if (found := _LEADER.fullmatch(name)) is not None:
        leader = view.partition(found[1], int(found[2])).leader
        if leader == NO_LEADER:
            raise LabError(f"{found[1]}-{found[2]} has no leader now")
        return f"broker-{leader}"
    if (found := _COORDINATOR.fullmatch(name)) is not None:
        if not view.coordinator(found[1]):
            raise LabError(f"group {found[1]} has no coordinator now")
        return view.coordinator(found[1])
    return name
