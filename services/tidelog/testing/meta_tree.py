"""The znodes of one simulated ZooKeeper server: versions, zxids, ephemerals, and which watches a change touches."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tidelog.ports.meta import (
    ANY_VERSION,
    BadVersion,
    Check,
    Create,
    Delete,
    MetaError,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    SetData,
    Stat,
)
from tidelog.runtime.meta_session import WatchKey


@dataclass(frozen=True, slots=True)
class Znode:
    data: bytes
    stat: Stat


Change = tuple[str, Znode | None]
"""A path and what is there from now on; None: nothing."""


def parent_of(path: str) -> str:
    return path.rpartition("/")[0] or "/"


class ZnodeTree:
    def __init__(self, nodes: Mapping[str, Znode] | None = None) -> None:
        self._nodes: dict[str, Znode] = {"/": Znode(b"", Stat(0, 0, 0, 0))}
        self._children: dict[str, dict[str, None]] = {}
        for path, node in (nodes or {}).items():
            if path != "/":
                self.put(path, node)

    def find(self, path: str) -> Znode | None:
        return self._nodes.get(path)

    def get(self, path: str) -> Znode:
        node = self._nodes.get(path)
        if node is None:
            raise NoNode(path)
        return node

    def children(self, path: str) -> list[str]:
        self.get(path)
        return sorted(self._children.get(path, ()))

    def owned_by(self, session_id: int) -> list[str]:
        """Paths of a session's ephemerals, sorted."""
        return sorted(path for path, node in self._nodes.items() if node.stat.ephemeral_owner == session_id)

    def dump(self) -> dict[str, Znode]:
        return dict(sorted(self._nodes.items()))

    def put(self, path: str, node: Znode | None) -> list[WatchKey]:
        """Makes one change; returns the watches that it fires."""
        before = self._nodes.get(path)
        siblings = self._children.setdefault(parent_of(path), {})
        name = path.rpartition("/")[2]
        if node is not None:
            self._nodes[path] = node
            siblings[name] = None
            data = [WatchKey(path, children=False)]
            return data if before is not None else [*data, WatchKey(parent_of(path), children=True)]
        if before is None:
            return []
        del self._nodes[path]
        del siblings[name]
        own = [WatchKey(path, children=False), WatchKey(path, children=True)]
        return [*own, WatchKey(parent_of(path), children=True)]

    def execute(self, ops: Sequence[Op], zxid: int, session_id: int) -> tuple[list[Stat | None], list[Change]]:
        """All of `ops` or none; MetaError of the first that fails, with its index. Returns the answers and the changes."""
        undo: list[Change] = []
        changes: list[Change] = []
        stats: list[Stat | None] = []
        for index, op in enumerate(ops):
            try:
                change = self._change(op, zxid, session_id)
            except MetaError as error:
                for path, node in reversed(undo):
                    self.put(path, node)
                raise type(error)(op.path, str(error).removeprefix(op.path).strip(), index) from None
            if change is not None:
                undo.append((op.path, self._nodes.get(op.path)))
                self.put(*change)
                changes.append(change)
            node = change[1] if change is not None else None
            stats.append(node.stat if node is not None else None)
        return stats, changes

    def _change(self, op: Op, zxid: int, session_id: int) -> Change | None:
        if isinstance(op, Create):
            parent = self.get(parent_of(op.path))
            if self.find(op.path) is not None:
                raise NodeExists(op.path)
            if parent.stat.ephemeral_owner:
                raise MetaError(op.path, "an ephemeral has no children")
            return op.path, Znode(op.data, Stat(0, zxid, zxid, session_id if op.ephemeral else 0))
        node = self.get(op.path)
        if op.version not in (ANY_VERSION, node.stat.version):
            raise BadVersion(op.path)
        match op:
            case Check():
                return None
            case SetData():
                return op.path, Znode(op.data, replace(node.stat, version=node.stat.version + 1, mzxid=zxid))
            case Delete():
                if self._children.get(op.path):
                    raise NotEmpty(op.path)
                return op.path, None
