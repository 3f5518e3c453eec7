"""Writes of a coordinator as changes of znodes, and those as operations of the metadata store."""

from collections.abc import Set
from typing import NamedTuple

from tidelog.coordinator.effects import Write
from tidelog.coordinator.model import Committed, GroupHead, Owner, Phase, StoredMember
from tidelog.ports.meta import Create, Delete, Op, SetData
from tidelog.wire import znodes


class Change(NamedTuple):
    """What one znode is to hold; None: it is to be gone."""

    path: str
    data: bytes | None


def changes(write: Write) -> list[Change]:
    """Offsets, owners, head: what a new coordinator reads of a half of them is a rebalance that has not begun (HOLE-46)."""
    found = [
        Change(
            znodes.offset_path(write.group_id, *tp),
            None if committed is None else znodes.encode_offset(_stored_offset(committed)),
        )
        for tp, committed in write.offsets.items()
    ]
    found += [
        Change(
            znodes.owner_path(write.group_id, *tp),
            None if owner is None else znodes.encode_owner(_stored_owner(owner)),
        )
        for tp, owner in write.owners.items()
    ]
    if write.head is not None:
        found.append(Change(znodes.group_path(write.group_id), znodes.encode_head(_stored_head(write.head))))
    return found


def removals(known: Set[str]) -> list[Change]:
    """Of everything that is known of a group; children before parents."""
    return [Change(path, None) for path in sorted(known, key=lambda path: (-path.count("/"), path))]


def operations(change: Change, known: Set[str]) -> list[Op]:
    """`known` are the znodes of the group that exist; what is missing above the changed one is made with it."""
    path, data = change
    if data is None:
        return [Delete(path)] if path in known else []
    if path in known:
        return [SetData(path, data)]
    return [*(Create(above) for above in _above(path) if above not in known), Create(path, data)]


def _above(path: str) -> list[str]:
    """From the group down."""
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(3, len(parts))]


def _stored_offset(committed: Committed) -> znodes.StoredOffset:
    return znodes.StoredOffset(committed.offset, committed.leader_epoch, committed.metadata, committed.topic_id)


def _stored_owner(owner: Owner) -> znodes.StoredOwner:
    return znodes.StoredOwner(owner.thread_id, owner.consumer_id, owner.generation)


def _stored_head(head: GroupHead) -> znodes.StoredHead:
    return znodes.StoredHead(
        generation=head.generation,
        phase=head.phase.value,
        members={
            consumer: znodes.StoredMember(
                member.session_timeout_ms, member.incarnation, member.static, member.admission
            )
            for consumer, member in head.members.items()
        },
        assignor=head.assignor,
        empty_since_ms=head.empty_since_ms,
        began=head.began,
    )


def head_of(group_id: str, data: bytes) -> GroupHead:
    """BadZnode: it is damaged."""
    stored = znodes.decode_head(group_id, data)
    try:
        phase = Phase(stored.phase)
    except ValueError as error:
        raise znodes.BadZnode(znodes.group_path(group_id), f"'phase' is {stored.phase!r}") from error
    members = {consumer: StoredMember(*member) for consumer, member in stored.members.items()}
    return GroupHead(stored.generation, phase, members, stored.assignor, stored.empty_since_ms, stored.began)


def owner_of(path: str, data: bytes) -> Owner:
    stored = znodes.decode_owner(path, data)
    return Owner(stored.thread, stored.consumer, stored.generation)


def offset_of(path: str, data: bytes) -> Committed:
    return Committed(*znodes.decode_offset(path, data))
