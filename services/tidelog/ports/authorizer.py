"""Who may do what, as a port (Kafka's operations and resources).

Until certificates give callers an identity everybody is `ANONYMOUS`; the table from method to operation is
`tidelog.runtime.authorization`.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

ANONYMOUS: Final = "User:ANONYMOUS"
"""The principal of a caller that nobody has identified."""


class Operation(Enum):
    READ = "Read"
    WRITE = "Write"
    CREATE = "Create"
    DELETE = "Delete"
    ALTER = "Alter"
    DESCRIBE = "Describe"
    CLUSTER_ACTION = "ClusterAction"
    """What only brokers and controllers do to each other (C3.01)."""
    IDEMPOTENT_WRITE = "IdempotentWrite"


class ResourceType(Enum):
    CLUSTER = "Cluster"
    TOPIC = "Topic"


@dataclass(frozen=True, slots=True)
class Resource:
    kind: ResourceType
    name: str


CLUSTER: Final = Resource(ResourceType.CLUSTER, "kafka-cluster")
"""The one resource of its kind; the name is Kafka's."""


class Authorizer(Protocol):
    def allows(self, principal: str, operation: Operation, resource: Resource) -> bool:
        """Answers at once, from memory: it stands before every request."""
        ...


class AllowEverything:
    """For a cluster whose network is trusted. Where it is in force, nobody is asked at all."""

    def allows(self, principal: str, operation: Operation, resource: Resource) -> bool:
        return True


ALLOW_EVERYTHING: Final = AllowEverything()
