"""What became of the promises that are about records, as far as they were judged."""

from tidelog.chaos.checker.findings import Findings
from tidelog.chaos.checker.promise import Promise
from tidelog.chaos.checker.verdict import Kept


def check_contents(acked: int, promise: Promise, found: Findings) -> list[Kept]:
    """`acked`: how many records were acknowledged."""
    gone = max(map(found.count, ("lost-acked", "unseen", "lost-write")))  # several rules name the same record
    alone = found.count("allowed-loss")
    kept = []
    if promise.lost == "none":
        kept.append(Kept("no acknowledged record is lost", not (gone or alone), f"{gone + alone} of {acked}", "0"))
    elif promise.lost == "one-copy":
        text = "no record is lost that more than one replica had when it was acknowledged"
        kept.append(Kept(text, not gone, f"{gone} of {acked}, {alone} that one alone had", "0"))
    if promise.idempotent:
        twice = found.count("duplicate")
        kept.append(Kept("no acks=all record is in the log twice", not twice, str(twice), "0"))
    return kept
