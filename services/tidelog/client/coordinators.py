"""The coordinator of a group: who it is (ClusterMetadata with the group, at any broker), and calls to it.

A coordinator moves when its broker dies, and while it is elected or reads its groups it serves nobody: such a call is
repeated, after asking again who it is. What is called must therefore bear to be done twice.
"""

from typing import Final, TypeVar

from tidelog.client.connections import ClientPorts, Connections
from tidelog.client.metadata import ClusterMetadata
from tidelog.errors import ErrorCode, TidelogError, TransportError
from tidelog.ids import Address
from tidelog.names import validate_group_id
from tidelog.ports.net import Unary
from tidelog.runtime.retry import COORDINATOR
from tidelog.wire import messages as m
from tidelog.wire.services import COORDINATOR_SERVICE_CLUSTER_METADATA

Req = TypeVar("Req")
Res = TypeVar("Res")

ELSEWHERE: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
"""Nothing was done: the asked broker does not coordinate the group, or not yet."""
_ONE_BROKER_S: Final = 2.0
"""A coordinator that is paused has lost its office by then, or soon: it is asked for again after this."""


class Coordinators:
    """Who coordinates which group, as far as it was asked for. One per client."""

    def __init__(self, ports: ClientPorts, connections: Connections, metadata: ClusterMetadata, limit_s: float) -> None:
        self._ports = ports
        self._connections = connections
        self._metadata = metadata
        self._limit_s = limit_s
        self._known: dict[str, Address] = {}

    async def find(self, group_id: str, limit_s: float | None = None) -> Address:
        """The coordinator's address. One look: COORDINATOR_NOT_AVAILABLE when the asked broker knows of none.

        INVALID_GROUP_ID at once; ClusterUnreachable when no broker answers within the limit.
        """
        validate_group_id(group_id)
        known = self._known.get(group_id)
        if known is not None:
            return known
        request = m.ClusterMetadataRequest(group_id=group_id)
        limit = self._limit_s if limit_s is None else limit_s
        answer = await self._metadata.call_any(COORDINATOR_SERVICE_CLUSTER_METADATA, request, _ONE_BROKER_S, limit)
        if answer.error_code is not ErrorCode.NONE:
            raise TidelogError(f"group {group_id!r}: {answer.error_code.name}", answer.error_code)
        for broker in answer.brokers_info:
            if broker.id == answer.coordinator_id:
                return self.learn(group_id, Address(broker.host, broker.port))
        raise TidelogError(f"group {group_id!r} has no coordinator now", ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def learn(self, group_id: str, address: Address) -> Address:
        """Takes over what an answer said; `find` believes it until `forget`."""
        self._known[group_id] = address
        return address

    def forget(self, group_id: str) -> None:
        """The next `find` asks again."""
        self._known.pop(group_id, None)

    async def call(self, group_id: str, method: Unary[Req, Res], request: Req) -> Res:
        """The coordinator's answer; after the limit the last error, of the call or of the search.

        `ELSEWHERE` is raised only so; every other error code, of the whole or of an item, is the caller's to judge.
        """
        async for attempt in COORDINATOR.retrying(self._ports.clock, self._ports.rand, self._limit_s):
            with attempt:
                answer = await self.call_once(group_id, method, request)
        return answer

    async def call_once(self, group_id: str, method: Unary[Req, Res], request: Req) -> Res:
        """One try. TransportError leaves open whether it was done; after a TidelogError of `ELSEWHERE` nothing was."""
        address = await self.find(group_id)
        try:
            answer = await self._connections.to(address, "coordinator").call(method, request, self._patience_s)
            raise_if_elsewhere(answer, f"group {group_id!r}: ")
        except (TransportError, TidelogError):
            self.forget(group_id)
            raise
        return answer

    @property
    def _patience_s(self) -> float:
        return min(_ONE_BROKER_S, self._limit_s)


def raise_if_elsewhere(answer: object, subject: str = "") -> None:
    """TidelogError when the answer as a whole, or that for an item, says that nothing was done here."""
    items = getattr(answer, "groups", None) or getattr(answer, "results", None) or ()
    for each in (answer, *items):
        code = getattr(each, "error_code", ErrorCode.NONE)
        if code in ELSEWHERE:
            said = getattr(each, "error_message", "") or code.name
            raise TidelogError(f"{subject}{said}", code)
