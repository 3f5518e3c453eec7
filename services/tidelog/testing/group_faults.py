"""What breaks in a simulated run of groups: what breaks in every run but disks, and consumers and coordinators by themselves."""

from collections.abc import Callable
from functools import partial
from typing import Final

from tidelog.testing import goals
from tidelog.testing.disk import Crash
from tidelog.testing.net_exchange import Faults as LinkFaults
from tidelog.testing.sim_agent import AgentNode
from tidelog.testing.sim_faults import Faults
from tidelog.testing.sim_node import SimNode

_GENERAL: Final = (
    "kill",
    "bounce",
    "terminate",
    "restart",
    "pause",
    "cut",
    "isolate",
    "swizzle",
    "bad network",
    "slow link",
    "resets",
    "zookeeper link",
    "zookeeper outage",
    "unknown outcome",
    "expire",
    "wall clock",
)


class GroupFaults(Faults):
    """In the place of `Faults`. No power is lost, so that what was read stays in the logs."""

    DAMAGE_SHARE = 0.5

    def _breaking(self) -> dict[str, Callable[[], bool]]:
        general = super()._breaking()
        return {
            **{kind: general[kind] for kind in _GENERAL},
            "agent kill": self._kill_agent,
            "agent restart": self._restart_agent,
            "agent pause": self._pause_agent,
            "agent cut": self._cut_agent,
            "agent resets": self._reset_agent,
            "agent slow": self._slow_agent,
            "coordinator kill": self.kill_coordinator,
            "coordinator pause": self._pause_coordinator,
            "coordinator expires": self._expire_coordinator,
            "coordinator unknown outcome": self._unknown_of_coordinator,
        }

    def heal(self) -> None:
        """A slow application is a fault too: LIVE-5 bounds what the cluster takes, not what is done with its records."""
        for node in self._cluster.nodes.values():
            if isinstance(node, AgentNode):
                node.hasten()
        super().heal()

    def _crash(self) -> Crash:
        return Crash.PROCESS

    # -- consumers ---------------------------------------------------------------------------------------------------

    def _agent(self) -> SimNode | None:
        return self._pick([node for node in self._awake() if node.name.startswith("agent")])

    def _kill_agent(self) -> bool:
        node = self._agent()
        if node is None:
            return False
        node.kill()
        self._later(self._between(0.0, 6.0), partial(self._start_one, node))
        return True

    def _restart_agent(self) -> bool:
        """It leaves its group, and half of the times comes back at once."""
        node = self._agent()
        if node is None:
            return False
        node.terminate()
        if self._maybe():
            for tries in range(1, 30):
                self._later(0.2 * tries, partial(self._start_one, node))
        return True

    def _pause_agent(self) -> bool:
        node = self._agent()
        if node is None:
            return False
        return self._pause_for(node, self._between(0.2, 1.0) if self._maybe() else self._between(1.0, 9.0))

    def _cut_agent(self) -> bool:
        """Between a consumer and one broker or all, one way or both."""
        node = self._agent()
        if node is None:
            return False
        brokers = self._cluster.brokers if self._maybe() else [self._one_of(self._cluster.brokers)]
        seconds, ways = self._between(0.3, 8.0), 1 + self._rand.randrange(3)
        both = (((node.name, broker.name), (broker.name, node.name)) for broker in brokers)
        self._cut_for(seconds, *(ends for there, back in both for ends in ((there,), (back,), (there, back))[ways - 1]))
        return True

    def _reset_agent(self) -> bool:
        node = self._agent()
        if node is None:
            return False
        for number in range(1 + self._rand.randrange(6)):
            self._later(number * self._between(0.05, 0.6), partial(self._reset, node.name))
        return True

    def _slow_agent(self) -> bool:
        """Its messages, or those to it, take seconds, and calls are made twice."""
        node = self._agent()
        if node is None:
            return False
        seconds = self._between(0.2, 3.0)
        for broker in self._cluster.brokers:
            faults = LinkFaults(delay_s=(0.0, seconds), tail=self._one_of((1, 3)), duplicate=0.5)
            source, target = self._shuffled((node.name, broker.name))
            self._disturb_for(source, target, faults, self._between(1.0, 4.0) * seconds)
        return True

    def _wall_clock(self) -> bool:
        before = {node.name: node.clock.wall_offset_ms for node in self._cluster.brokers}
        jumps = super()._wall_clock()
        moved = [node for node in self._cluster.brokers if node.clock.wall_offset_ms != before[node.name]]
        self._cluster.observer.reached[goals.JUMPED] += any(_coordinates(node) for node in moved)
        return jumps

    # -- coordinators ------------------------------------------------------------------------------------------------

    def _coordinator(self) -> SimNode | None:
        return self._pick([node for node in self._awake(brokers_only=True) if _coordinates(node)])

    def kill_coordinator(self) -> bool:
        node = self._coordinator()
        if node is None:
            return False
        node.kill()
        self._later(self._between(0.0, 4.0), partial(self._start_one, node))
        return True

    def _pause_coordinator(self) -> bool:
        node = self._coordinator()
        if node is None:
            return False
        return self._pause_for(node, self._between(0.2, 2.0) * self._cluster.timing.session_ms / 1000)

    def _expire_coordinator(self) -> bool:
        node = self._coordinator()
        if node is None or node.coordinator_meta is None:
            return False
        self._expire_session(node, node.coordinator_meta, "of the coordinators ")
        return True

    def _unknown_of_coordinator(self) -> bool:
        node = self._coordinator()
        if node is None or node.coordinator_meta is None:
            return False
        node.coordinator_meta.lose_next_multi(applied=self._maybe(), then=lambda: None)
        return self._say(f"the next write of the coordinators of {node.name} gets no answer", node.name)


def _coordinates(node: SimNode) -> bool:
    found = node.broker.coordinators if node.broker is not None else None
    return found is not None and bool(found.terms)
