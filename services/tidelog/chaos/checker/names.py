"""The rules by name, in the order of a report; Jepsen's spelling where Jepsen has them (reliability 1.4 and 1.6)."""

from collections.abc import Mapping
from typing import Final

from tidelog.chaos.checker.promise import Promise

RULES: Final[Mapping[str, str]] = {
    "inconsistent-offsets": "one offset carries several values",
    "duplicate": "one value is at several offsets, although its producer is idempotent",
    "duplicate (not idempotent)": "the same of a producer that is not: it may have sent it again",
    "wrong-offset": "a value that one replica acknowledged at an offset is at another one",
    "G1a": "a value was read whose send certainly failed",
    "never-sent": "a value was read that nobody sent to this partition",
    "lost-write": "an acknowledged value was never read, although a later one was",
    "unseen": "an acknowledged value was never read by the end",
    "lost-acked": "an acknowledged value is not in the final read (X1)",
    "allowed-loss": "a value that one replica alone acknowledged is gone, after its leader changed and unread (X3)",
    "final-incomplete": "a value that was read before is not in the final read (X1)",
    "final-differs": "two readers of the final phase saw different logs (X1)",
    "torn-batch": "a part of a batch is in the log at last, or its records are apart",
    "hole": "the final read found an offset without a record",
    "replicas-differ": "replicas hold different bytes below the high watermark (X2)",
    "replica-torn": "a replica lacks an offset below the high watermark, or has it twice or out of order",
    "watermark-fell": "a leader's high watermark is below an earlier one, or below what was read (X4)",
    "watermark-ahead": "a leader's high watermark is behind the end of its log",
    "poll-skip": "a consumer passed over values between two polls",
    "nonmonotonic-poll": "a consumer went back, or read again, between two polls",
    "poll-skip (subscribed)": "the same of a member of a group",
    "nonmonotonic-poll (subscribed)": "the same of a member of a group",
    "consumer-unread": "a consumer without a group passed over the beginning of a log, or never came to an acknowledged value",
    "int-poll-skip": "one operation passed over values",
    "int-nonmonotonic-poll": "one operation went back, or read again",
    "nonmonotonic-send": "a producer's value is before one that it sent earlier",
    "nonmonotonic-send (unknown)": "the same without idempotence, where the outcome of the earlier send is unknown",
    "int-nonmonotonic-send": "two sends of one operation are in reverse order",
    "int-send-skip": "two sends of one operation have others between them",
    "precommitted-read": "an operation read its own send",
    "G0": "a cycle of writes",
    "G0-process": "a cycle of writes and the order of processes",
    "G0-realtime": "a cycle of writes and time",
    "G1c": "a cycle of reads from each other",
    "G1c-process": "a cycle of reads and the order of processes",
    "G1c-realtime": "a cycle of reads and time: something was read before it was sent",
    "G1c (ww)": "a cycle of reads and writes",
    "G1c-process (ww)": "a cycle of reads, writes and the order of processes",
    "G1c-realtime (ww)": "a cycle of reads, writes and time",
    "group-two-owners": "a partition has two owners in one generation, or another member than its owner committed (X5)",
    "group-commit-fell": "a committed offset is below one that was committed before (X5)",
    "group-commit-ahead": "an offset was committed beyond what was processed (X5)",
    "group-commit-lost": "at last less is committed than was acknowledged, or than was processed",
    "group-skipped": "a group passed over a value (X5)",
    "group-unprocessed": "a group had not come to an acknowledged value by the end (X5)",
    "group-duplicates": "a group processed a value again with no rebalance, after its commit, or more than one has in hand (X5)",
    "unavailable": "a partition acknowledged nothing for longer than promised (X6)",
}

_BY_DEFINITION: Final = frozenset(
    {
        "int-send-skip",  # a batch that others' records come between is no fault
        "duplicate (not idempotent)",
        "nonmonotonic-send (unknown)",  # what nobody waits for any more may still be on its way
        "poll-skip (subscribed)",
        "nonmonotonic-poll (subscribed)",  # a rebalance may lie between, unseen
        *("G0", "G0-process", "G0-realtime"),  # writes are not isolated in Kafka
        *("G1c (ww)", "G1c-process (ww)", "G1c-realtime (ww)"),
    }
)
_IF_ONE_COPY_MAY_BE_LOST: Final = frozenset({"allowed-loss"})
_IF_ALL_MAY_BE_LOST: Final = _IF_ONE_COPY_MAY_BE_LOST | {
    *("lost-write", "unseen", "lost-acked", "final-incomplete"),
    *("inconsistent-offsets", "watermark-fell", "nonmonotonic-poll", "poll-skip", "nonmonotonic-send"),
    *("group-commit-fell", "group-commit-ahead", "group-commit-lost"),
    *("group-skipped", "group-unprocessed", "group-duplicates"),
}
"""A log that was cut below what was acknowledged and read is written anew there: readers, groups and producers
start again in it."""


def tolerated(name: str, promise: Promise) -> bool:
    return (
        name in _BY_DEFINITION
        or (promise.lost == "one-copy" and name in _IF_ONE_COPY_MAY_BE_LOST)
        or (promise.lost == "allowed" and name in _IF_ALL_MAY_BE_LOST)
    )
