"""Protocol events as messages of the watch service, and back."""

import re
from collections.abc import Mapping
from typing import Any, Final

from tidelog.ids import TopicPartition
from tidelog.ports.recorder import Cause, Origin, ProtocolEvent, Subject, Znode
from tidelog.watch.kinds import FAMILY_OF
from tidelog.wire import messages as m


def _field(kind: type[Any]) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


FIELD_OF: Final[Mapping[type[Any], str]] = {kind: _field(kind) for kind in FAMILY_OF}
"""The field of WatchedEvent for each kind."""


def to_message(event: ProtocolEvent) -> m.WatchedEvent:
    subject, cause = event.subject, event.cause
    given: dict[str, Any] = {FIELD_OF[type(event.fields)]: event.fields}
    if isinstance(subject, TopicPartition):
        given["partition"] = m.WatchedPartition(topic=subject.topic, partition=subject.partition)
    elif isinstance(subject, int):
        given["broker_id"] = subject
    elif subject is not None:
        given["group_id"] = subject
    if isinstance(cause, Znode):
        given["znode"] = m.ZnodeName(path=cause.path, version=cause.version)
    elif cause is not None:
        given["cause"] = m.EventName(process=cause.process, life=cause.life, number=cause.number)
    return m.WatchedEvent(number=event.number, time_ns=event.wall_ns, **given)


def from_message(message: m.WatchedEvent) -> ProtocolEvent:
    """Returns the event; one of a kind that this release does not know has a WatchedEvent as its fields."""
    fields: Any = message
    for name in FIELD_OF.values():
        found = getattr(message, name)
        if found is not None:
            fields = found
            break
    return ProtocolEvent(message.time_ns, message.number, _subject(message), fields, _cause(message))


def _cause(message: m.WatchedEvent) -> Origin | None:
    cause, znode = message.cause, message.znode
    if cause is not None:
        return Cause(cause.process, cause.life, cause.number)
    return None if znode is None else Znode(znode.path, znode.version)


def _subject(message: m.WatchedEvent) -> Subject:
    if message.partition is not None:
        return TopicPartition(message.partition.topic, message.partition.partition)
    return message.group_id if message.broker_id is None else message.broker_id
