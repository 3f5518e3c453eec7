"""Opening a log again without holding up its owner: it may have to be read from its recovery point on."""

from dataclasses import dataclass

from tidelog.errors import TidelogError
from tidelog.ids import TopicPartition
from tidelog.storage.checkpoint import LogKey
from tidelog.storage.partition_log import PartitionLog
from tidelog.storage.recovery import Opening


@dataclass(frozen=True, slots=True)
class Reopening:
    """`begin_reopen`, `run` (any thread), `end_reopen` or `give_up_reopen`."""

    tp: TopicPartition
    log: PartitionLog
    opening: Opening
    old: PartitionLog | None
    discard: bool
    """A damaged log is cut where its damage begins."""
    cut_to: int | None
    """Nothing above this offset can be trusted."""

    def run(self) -> None:
        """KAFKA_STORAGE_ERROR while the disk fails."""
        self.log.load(self.opening)

    def outcome(self) -> TidelogError | None:
        """`run`, with its error as a value."""
        try:
            self.run()
        except TidelogError as error:
            return error
        return None

    def cuts(self) -> dict[LogKey, int]:
        """The end to which the log will be cut, once it is loaded; empty when nothing is cut."""
        ends = [] if self.cut_to is None else [self.cut_to]
        if self.discard and self.log.damage is not None:
            ends.append(self.log.damage.offset)
        return {self.log.key: min(ends)} if ends else {}
