"""Tidelog, a replicated, partitioned log: its Python client. Servers and the command line are packages below.

`Producer`, `Consumer` and `Admin` run in an asyncio event loop; `SyncProducer`, `SyncConsumer` and `SyncAdmin` are for threads.
A name is imported at its first use, so `import tidelog` costs next to nothing. `tidelog.errors` has a class for each error code.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from tidelog.release import VERSION as __version__

if TYPE_CHECKING:
    from tidelog.client.admin import Admin
    from tidelog.client.consumer import Consumer
    from tidelog.client.errors import (
        BadBatchError,
        ClientClosed,
        ClusterUnreachable,
        DeliveryError,
        LogTruncationError,
        PositionOutOfRangeError,
    )
    from tidelog.client.producer import Producer, RecordMetadata
    from tidelog.client.records import ConsumerRecord
    from tidelog.client.sync import SyncAdmin, SyncConsumer, SyncProducer
    from tidelog.errors import Error, ErrorCode, TidelogError, TransportError
    from tidelog.ids import Address, TopicPartition

__all__ = (
    "Address",
    "Admin",
    "BadBatchError",
    "ClientClosed",
    "ClusterUnreachable",
    "Consumer",
    "ConsumerRecord",
    "DeliveryError",
    "Error",
    "ErrorCode",
    "LogTruncationError",
    "PositionOutOfRangeError",
    "Producer",
    "RecordMetadata",
    "SyncAdmin",
    "SyncConsumer",
    "SyncProducer",
    "TidelogError",
    "TopicPartition",
    "TransportError",
    "__version__",
)

_HOMES = {
    "client.admin": ("Admin",),
    "client.consumer": ("Consumer",),
    "client.errors": (
        "BadBatchError",
        "ClientClosed",
        "ClusterUnreachable",
        "DeliveryError",
        "LogTruncationError",
        "PositionOutOfRangeError",
    ),
    "client.producer": ("Producer", "RecordMetadata"),
    "client.records": ("ConsumerRecord",),
    "client.sync": ("SyncAdmin", "SyncConsumer", "SyncProducer"),
    "errors": ("Error", "ErrorCode", "TidelogError", "TransportError"),
    "ids": ("Address", "TopicPartition"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'tidelog' has no attribute {name!r}")
    found = getattr(import_module(f"tidelog.{_HOME_OF[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
