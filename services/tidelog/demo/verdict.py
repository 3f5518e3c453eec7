"""What a demo found out."""

from collections.abc import Mapping
from dataclasses import dataclass

from tidelog.chaos.ledger import Findings
from tidelog.demo.agents import Processed, Takeover


@dataclass(frozen=True, slots=True)
class Streamed:
    sent: int
    acked: int
    refused: int
    unknown: int
    """Neither acknowledged nor certainly refused; they may be in the log."""
    elections: int
    longest_without_ack_s: float
    full_isr_s: float
    """From the restart of the killed broker until every ISR was full."""
    seconds: float
    """From the first send to the last answer."""
    takeover: Takeover
    stalls: Mapping[int, tuple[float, float]]
    """The longest wait for an acknowledgement in each partition: when it began and ended."""


@dataclass(frozen=True, slots=True)
class Verdict:
    streamed: Streamed
    found: Findings
    processed: Processed

    @property
    def exit_code(self) -> int:
        """0: nothing acked is missing, doubled or out of order, all of it was processed, and nothing was refused. 1: the log or
        the group broke its promise. 2: some records were not accepted."""
        if not self.found.sound or not self.processed.found.sound:
            return 1
        return 2 if self.streamed.refused or self.streamed.unknown else 0
