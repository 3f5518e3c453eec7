"""Election, registration and watching, over the `Meta` port (reliability 6.4).

What they share: the outcome of a write may be unknown, so they decide by what is there (its owner, its zxid) and never
by the answer that they got; and they wait for ever for a store that is away.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from tidelog.ports.meta import (
    BadVersion,
    Create,
    Delete,
    Meta,
    NodeExists,
    NoNode,
    Op,
    OutcomeUnknown,
    SessionExpired,
    SetData,
    Stat,
)
from tidelog.wire.znodes import NO_VERSION, decode_controller_epoch

T = TypeVar("T")

log = logging.getLogger(__name__)

IsDead = Callable[[bytes, Stat], Awaitable[bool]]
"""Answers whether the holder of a path has ended, by the znode's data and Stat."""

READS_AT_ONCE: Final = 500
SAY_AGAIN_S: Final = 5.0

LOOK_AGAIN: Final = (OutcomeUnknown, SessionExpired, NodeExists, BadVersion, NoNode)
"""After these the picture that a write was made from is old: read again and decide again."""


@dataclass(frozen=True, slots=True)
class Elected:
    """What an election gave to its winner."""

    epoch: int
    epoch_version: int
    """Of the epoch znode: each of the winner's multis checks it."""
    session_id: int
    """Of the winner; what it won is gone with it."""
    version: int
    """Of the winner's ephemeral, for its lease."""


async def elect(meta: Meta, path: str, epoch_path: str, payload: bytes) -> Elected | None:
    """Tries to become what the ephemeral `path` stands for, under a new epoch. None: somebody else is it.

    One multi makes the ephemeral and raises the epoch, so both carry one zxid; that, with the owner, tells afterwards
    whether this session won, whatever answer it got. The first epoch is 1. `payload` should name the attempt.

    BadZnode: what is stored is no epoch; to begin again at 1 would be to begin below an epoch that was (HOLE-11).
    """
    await ensure_path(meta, parent(path))
    await ensure_path(meta, parent(epoch_path))
    while True:
        try:
            await meta.sync(path)
            holder = await find(meta, path)
            current = await find(meta, epoch_path)
            if holder is not None:
                return _won(meta, holder[1], current)
            ops: list[Op] = [Create(path, payload, ephemeral=True)]
            if current is None:
                ops.append(Create(epoch_path, b"1"))
            else:
                ops.append(
                    SetData(
                        epoch_path, b"%d" % (decode_controller_epoch(current[0], epoch_path) + 1), current[1].version
                    )
                )
            await meta.multi(ops)
        except LOOK_AGAIN as error:
            log.info("election on %s: %r; reading again", path, error)


def _won(meta: Meta, holder: Stat, current: tuple[bytes, Stat] | None) -> Elected | None:
    if holder.ephemeral_owner != meta.session_id or current is None:
        return None
    data, stat = current
    # Read one after the other: if the session ended in between, the epoch is somebody else's.
    if stat.mzxid != holder.czxid:
        return None
    return Elected(decode_controller_epoch(data), stat.version, holder.ephemeral_owner, holder.version)


async def resign(meta: Meta, path: str) -> int:
    """Gives back what this session won, so that the next election raises the epoch; `elect` would find it still held. Returns
    the version that it deleted; -1: it had nothing."""
    deleted = NO_VERSION
    while True:
        try:
            await meta.sync(path)
            holder = await find(meta, path)
            if holder is None or holder[1].ephemeral_owner != meta.session_id:
                return deleted
            deleted = holder[1].version
            await meta.multi([Delete(path, deleted)])
        except LOOK_AGAIN as error:
            log.info("resignation from %s: %r; reading again", path, error)


async def _waits(_data: bytes, _stat: Stat) -> bool:
    return False


async def _nothing() -> Sequence[Op]:
    return ()


async def register(
    meta: Meta,
    path: str,
    payload: bytes,
    is_dead: IsDead = _waits,
    with_it: Callable[[], Awaitable[Sequence[Op]]] = _nothing,
) -> Stat:
    """Makes the ephemeral `path` of this session, and waits for as long as it takes (HOLE-40).

    `is_dead` is asked about an ephemeral of another session, and may raise. One that is dead is taken over at once. Any other
    is waited for: it ends by itself within a session timeout, or it belongs to a process with the same id, which the log
    says. The Stat's czxid is the new broker epoch. Before each try `with_it` is asked for what the same multi writes.
    """
    await ensure_path(meta, parent(path))
    while True:
        try:
            await meta.multi([Create(path, payload, ephemeral=True), *await with_it()])
        except NodeExists:
            log.debug("%s exists", path)
        except LOOK_AGAIN as error:
            log.info("registration at %s: %r; reading again", path, error)
        try:
            await meta.sync(path)
            found = await find(meta, path)
            if found is None:
                continue
            data, stat = found
            if stat.ephemeral_owner == meta.session_id:
                if data == payload:
                    return stat
                await meta.multi([SetData(path, payload, stat.version)])
            elif await is_dead(data, stat):
                log.info("taking %s over from the previous session %#x", path, stat.ephemeral_owner)
                await meta.multi([Delete(path, stat.version)])
            else:
                await _wait_for_end(meta, path, data, stat)
        except LOOK_AGAIN as error:
            log.info("registration at %s: %r; reading again", path, error)


async def _wait_for_end(meta: Meta, path: str, data: bytes, stat: Stat) -> None:
    changed = asyncio.Event()
    if await meta.exists(path, changed.set) != stat:
        return
    log.warning(
        "%s is held by session %#x (%s): waiting for it to end; if another process runs with this id, stop one of them",
        path,
        stat.ephemeral_owner,
        data.decode(errors="replace"),
    )
    try:
        async with asyncio.timeout(SAY_AGAIN_S):
            await changed.wait()
    except TimeoutError:
        return


async def ensure_path(meta: Meta, path: str) -> None:
    """Makes `path` and what is missing above it, persistent and empty; waits for a store that is away."""
    if path == "/":
        return
    while True:
        try:
            if await meta.exists(path) is not None:
                return
            await ensure_path(meta, parent(path))
            await meta.multi([Create(path)])
        except LOOK_AGAIN as error:
            log.debug("making %s: %r; reading again", path, error)


def parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


async def find(meta: Meta, path: str) -> tuple[bytes, Stat] | None:
    """`get`, with None where nothing is."""
    try:
        return await meta.get(path)
    except NoNode:
        return None


async def watch_children(
    meta: Meta, path: str, *, reconcile_s: float | None = None
) -> AsyncIterator[dict[str, tuple[bytes, Stat]]]:
    """Full snapshots {name: (data, Stat)}: one now, and one whenever children came or went or the connection was lost.

    A child that went and came back has another czxid: compare it, for nothing else tells (HOLE-41, MUT-24). The data of a
    child that stays are not watched. `reconcile_s` reads again at least that often. A missing `path` has no children.
    """
    changed = asyncio.Event()
    while True:
        changed.clear()
        try:
            snapshot = await _read_children(meta, path, changed)
        except (OutcomeUnknown, SessionExpired) as error:
            log.debug("reading the children of %s: %r; reading again", path, error)
            continue
        yield snapshot
        try:
            async with asyncio.timeout(reconcile_s):
                await changed.wait()
        except TimeoutError:
            continue


async def _read_children(meta: Meta, path: str, changed: asyncio.Event) -> dict[str, tuple[bytes, Stat]]:
    try:
        names = await meta.children(path, changed.set)
    except NoNode:
        if await meta.exists(path, changed.set) is not None:
            changed.set()
        return {}
    found = await meta.get_many([f"{path.rstrip('/')}/{name}" for name in names])
    # One that went in between has fired the watch already.
    return {name: node for name, node in zip(names, found, strict=True) if node is not None}


async def children_of_each(meta: Meta, paths: Sequence[str]) -> list[list[str]]:
    """Names below each, pipelined; none below what does not exist."""

    async def read(path: str) -> list[str]:
        try:
            return await meta.children(path)
        except NoNode:
            return []

    return await _pipelined(read, paths)


async def get_each(meta: Meta, paths: Sequence[str], watch: Callable[[str], None]) -> list[tuple[bytes, Stat] | None]:
    """`get_many` with a watch on each, which calls `watch` with the path. None, without a watch, where nothing is."""

    async def read(path: str) -> tuple[bytes, Stat] | None:
        try:
            return await meta.get(path, partial(watch, path))
        except NoNode:
            return None

    return await _pipelined(read, paths)


async def _pipelined(read: Callable[[str], Coroutine[Any, Any, T]], paths: Sequence[str]) -> list[T]:
    found: list[T] = []
    for begin in range(0, len(paths), READS_AT_ONCE):
        try:
            async with asyncio.TaskGroup() as group:
                reads = [group.create_task(read(path)) for path in paths[begin : begin + READS_AT_ONCE]]
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        found += [each.result() for each in reads]
    return found
