"""Faults of data directories: emptied, cut short, altered, full."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Final

from tidelog.chaos.faults.base import Bed, Fault, FaultMissed, Injected, one_of, parameter, to_the_end, undo_each
from tidelog.chaos.faults.processes import end, killed, start_stopped
from tidelog.chaos.faults.transactions import write_until
from tidelog.chaos.quantities import count, size
from tidelog.cluster.api import BROKER, ZOOKEEPER, Cluster, ClusterError, kind_of
from tidelog.cluster.files import DataFiles
from tidelog.storage import epoch_journal
from tidelog.storage.data_dir import CLEAN_FILE
from tidelog.storage.log_marks import HIGH_WATERMARKS_FILE
from tidelog.storage.segment import INDEX_SUFFIX, LOG_SUFFIX

BROKERS: Final = frozenset({BROKER})
WITH_DATA: Final = frozenset({BROKER, ZOOKEEPER})
OF_THE_BROKER: Final = {"checkpoint": HIGH_WATERMARKS_FILE, "epochs": epoch_journal.FILE_NAME}
ZOOKEEPER_FAILS_WITHIN_S: Final = 15.0
FLIPPED: Final = "flipped"
"""Names what a fault has observed of a target: the path of the file in which it has flipped a bit."""
OF_A_PARTITION: Final = {"segment": LOG_SUFFIX, "index": INDEX_SUFFIX}


@dataclass(frozen=True)
class Wipe(Fault):
    name: ClassVar[str] = "wipe"
    about: ClassVar[str] = "SIGKILL, and its data directory emptied: a disk was replaced; healed by a start"
    destroys: ClassVar[bool] = True
    hits: ClassVar[frozenset[str]] = WITH_DATA

    async def inject(self, bed: Bed, targets: Sequence[str]) -> Injected:
        async with bed.injecting(self, targets, partial(start_stopped, bed.cluster, targets)) as injected:
            await killed(bed.cluster, targets)
            for target in targets:
                files = bed.cluster.files(target)
                await to_the_end(files.wipe)
                if left := await to_the_end(files.sizes):
                    raise FaultMissed(f"{target} still has {', '.join(left)}")
            injected.effect = f"{', '.join(targets)} killed, nothing is left of the data"
        return injected


@dataclass(frozen=True)
class TornTail(Fault):
    """What a loss of power leaves of a log: its end is gone, in the middle of a batch, and nothing says that it was closed."""

    name: ClassVar[str] = "torn-tail"
    about: ClassVar[str] = "SIGKILL, and the newest segment cut short; healed by a start"
    destroys: ClassVar[bool] = True
    hits: ClassVar[frozenset[str]] = BROKERS
    partition: int = parameter("0", count, "whose log is cut")
    bytes: int = parameter("200", size, "how much is cut off")

    async def inject(self, bed: Bed, targets: Sequence[str]) -> Injected:
        async with bed.injecting(self, targets, partial(start_stopped, bed.cluster, targets)) as injected:
            await killed(bed.cluster, targets)
            for target in targets:
                injected.observed[target] = await to_the_end(self._tear, bed.cluster.files(target), bed.topic, target)
            injected.effect = ", ".join(f"{target}: {seen}" for target, seen in injected.observed.items())
        return injected

    def _tear(self, files: DataFiles, topic: str, target: str) -> str:
        sizes = files.sizes()
        path = segments(sizes, f"{topic}-{self.partition}", LOG_SUFFIX, target)[-1]
        if not sizes[path]:
            raise ClusterError(f"{path} of {target} is empty: there is no tail to tear off")
        wanted = max(0, sizes[path] - self.bytes)
        files.truncate(path, wanted)
        files.remove(CLEAN_FILE)
        after = files.sizes()
        if after[path] != wanted or CLEAN_FILE in after:
            raise FaultMissed(f"{path} of {target} has {after[path]:,} bytes, not {wanted:,}")
        return f"{path} has {wanted:,} of {sizes[path]:,} bytes"


@dataclass(frozen=True)
class BitFlip(Fault):
    """It stays flipped: the broker has to notice. Of several segments the oldest is hit, which is closed."""

    name: ClassVar[str] = "bit-flip"
    about: ClassVar[str] = "one bit of a file inverted, while its broker runs or with SIGKILL before; healed by a start"
    destroys: ClassVar[bool] = True
    hits: ClassVar[frozenset[str]] = BROKERS
    file: str = parameter("segment", one_of(*OF_A_PARTITION, *OF_THE_BROKER), "which file")
    partition: int = parameter("0", count, "whose segment or index")
    state: str = parameter("stopped", one_of("stopped", "running"), "of the broker meanwhile")

    async def inject(self, bed: Bed, targets: Sequence[str]) -> Injected:
        async with bed.injecting(self, targets, partial(start_stopped, bed.cluster, targets)) as injected:
            effects: list[str] = []
            if self.state == "stopped":
                await killed(bed.cluster, targets)
            for target in targets:
                files = bed.cluster.files(target)
                path, offset = await to_the_end(self._flip, files, bed, target)
                injected.observed[target] = {FLIPPED: path}
                effects.append(f"{target}: a bit of byte {offset:,} of {path} is flipped")
            injected.effect = ", ".join(effects)
        return injected

    def _flip(self, files: DataFiles, bed: Bed, target: str) -> tuple[str, int]:
        sizes = files.sizes()
        path = self._choose(sizes, bed.topic, target)
        if not sizes.get(path):
            raise ClusterError(f"{target} has nothing in {path} that could be flipped")
        offset = bed.rand.randrange(sizes[path])
        before = _byte(files, path, offset)
        files.flip(path, offset)
        if _byte(files, path, offset) == before:
            raise FaultMissed(f"byte {offset} of {path} of {target} is what it was")
        return path, offset

    def _choose(self, sizes: Mapping[str, int], topic: str, target: str) -> str:
        if self.file in OF_THE_BROKER:
            return OF_THE_BROKER[self.file]
        return segments(sizes, f"{topic}-{self.partition}", OF_A_PARTITION[self.file], target)[0]


@dataclass(frozen=True)
class FullDisk(Fault):
    name: ClassVar[str] = "full-disk"
    about: ClassVar[str] = "no room for another record: a small disk filled, locally a limit on the size of files"
    hits: ClassVar[frozenset[str]] = WITH_DATA

    def check(self, cluster: Cluster) -> None:
        cluster.check_fillable()

    async def inject(self, bed: Bed, targets: Sequence[str]) -> Injected:
        servers = [target for target in targets if kind_of(target) == ZOOKEEPER]
        free = partial(_give_room, bed.cluster, targets, servers)
        async with bed.injecting(self, targets, free) as injected:
            seen = [await to_the_end(bed.cluster.fill_disk, target, LOG_SUFFIX) for target in targets]
            if servers:
                serve_nobody = partial(_serve_nobody, bed.cluster, servers)
                what = f"{' and '.join(servers)} finding it out"
                await write_until(bed, serve_nobody, what, ZOOKEEPER_FAILS_WITHIN_S)
                seen.append(f"{' and '.join(servers)} serve{'s' * (len(servers) == 1)} nobody")
            injected.effect = ", ".join(seen)
        return injected


def _serve_nobody(cluster: Cluster, servers: Sequence[str]) -> bool:
    return not any(cluster.zookeeper_mode(server) for server in servers)


def _give_room(cluster: Cluster, targets: Sequence[str], servers: Sequence[str]) -> None:
    """A ZooKeeper server that could not log either has ended or tries for ever to follow: with room it begins anew."""
    undo_each(
        [
            *(partial(end, cluster, server) for server in servers),
            *(partial(cluster.free_disk, target) for target in targets),
            partial(start_stopped, cluster, servers),
        ]
    )


def segments(sizes: Mapping[str, int], folder: str, suffix: str, target: str) -> list[str]:
    """Paths, the oldest first. ClusterError when the partition has none there."""
    found = sorted(path for path in sizes if path.startswith(f"{folder}/") and path.endswith(suffix))
    if not found:
        raise ClusterError(f"{target} keeps no replica of {folder}")
    return found


def _byte(files: DataFiles, path: str, offset: int) -> int:
    folder, _, name = path.rpartition("/")
    return files.read(folder)[name][offset]
