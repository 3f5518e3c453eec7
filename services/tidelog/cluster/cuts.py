"""The links that are cut. Where two cuts overlap, a link is whole again when both have ended."""

from collections.abc import Collection, Sequence

from tidelog.cluster.api import Direction, Way

Asked = tuple[str, frozenset[str] | None, Direction]


class Cuts:
    def __init__(self) -> None:
        self._made: list[tuple[Asked, frozenset[Way]]] = []

    def add(self, name: str, peers: Collection[str] | None, direction: Direction, ways: Collection[Way]) -> None:
        """Notes a cut. ways: what it cuts; the rest is as in `Cluster.isolate`."""
        self._made.append((_asked(name, peers, direction), frozenset(ways)))

    def end(self, name: str, peers: Collection[str] | None, direction: Direction) -> Sequence[Way]:
        """Ends one cut that was asked for like this, if there is one. Returns the ways that nothing else cuts."""
        asked = _asked(name, peers, direction)
        ended = next((cut for cut in self._made if cut[0] == asked), None)
        if ended is None:
            return ()
        self._made.remove(ended)
        return sorted(ended[1] - self.ways)

    @property
    def ways(self) -> frozenset[Way]:
        return frozenset(way for _, ways in self._made for way in ways)

    def clear(self) -> None:
        self._made.clear()


def _asked(name: str, peers: Collection[str] | None, direction: Direction) -> Asked:
    return name, None if peers is None else frozenset(peers), direction
