"""How long a partition kept its senders waiting, and what a sender writes into the ledger."""

import asyncio
from types import SimpleNamespace

import pytest

from tidelog.chaos.kill_leader import UNAVAILABLE_MAX_S, Verdict
from tidelog.chaos.ledger import SEQUENCE, Findings, Ledger, Outcome
from tidelog.chaos.load import Stalls, VerifiedSender
from tidelog.client.errors import DeliveryError
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import TopicPartition


def test_a_stall_lasts_from_the_later_of_send_and_last_ack():
    stalls = Stalls()
    stalls.acked(0, sent_at=10.0, now=10.5)
    stalls.acked(0, sent_at=10.1, now=10.7)
    assert stalls.longest_s[0] == pytest.approx(0.5)
    # Idle for long before this record was sent: nobody waited.
    stalls.acked(0, sent_at=60.0, now=60.1)
    assert stalls.worst_s() == pytest.approx(0.5)
    stalls.acked(1, sent_at=60.0, now=63.0)
    assert (stalls.worst_s(), stalls.worst_s([0]), stalls.worst_s([7])) == (pytest.approx(3.0), pytest.approx(0.5), 0.0)


class FakeProducer:
    """Ends each record as its value says."""

    def __init__(self):
        self.sent = []

    async def send(self, topic, value, key, headers, partition):
        if value == b"too large":
            raise TidelogError("over the limit", ErrorCode.MESSAGE_TOO_LARGE)
        self.sent.append((key, value, tuple(headers), partition))
        ack = asyncio.get_running_loop().create_future()
        tp = TopicPartition(topic, 1)
        if value == b"acked":
            ack.set_result(SimpleNamespace(partition=1, offset=40 + len(self.sent)))
        elif value == b"refused":
            ack.set_exception(DeliveryError(tp, "no", ErrorCode.NOT_ENOUGH_REPLICAS, outcome_known=True))
        elif value == b"unknown":
            # The last try was refused for certain; an earlier one got no answer.
            ack.set_exception(DeliveryError(tp, "no", ErrorCode.NOT_ENOUGH_REPLICAS, outcome_known=False))
        return ack


async def test_every_outcome_is_noted(tmp_path):
    ledger = Ledger(tmp_path / "ledger", writable=True)
    producer = FakeProducer()

    sender = VerifiedSender(producer, "t", ledger, SimpleNamespace(now=lambda: 1.0), "seq-x")
    for value in (b"acked", b"refused", b"unknown", b"too large", b"acked"):
        await sender.send(None, value, 1)
    sender.refuse()
    await asyncio.sleep(0)

    outcomes = [Outcome(o).name for o in ledger.entries["outcome"]]
    assert outcomes == ["ACKED", "REFUSED", "PENDING", "REFUSED", "ACKED", "REFUSED"]
    assert ledger.entries["offset"].tolist()[::4] == [41, 44]
    assert [headers for _, _, headers, _ in producer.sent] == [(("seq-x", SEQUENCE.pack(n)),) for n in (0, 1, 2, 4)]


def verdict(found=None, stalled_s=1.0):
    return Verdict("broker-1", 9, 9, 0, 0, found or Findings(read=9), 2, stalled_s, 3.0)


def test_the_verdict_names_each_broken_promise():
    assert verdict().broken() == []
    assert verdict(Findings(read=9, duplicated=5)).broken() == ["5 duplicated"]
    assert verdict(Findings(lost=2, out_of_order=1)).broken() == ["2 lost", "1 out of order"]
    (late,) = verdict(stalled_s=UNAVAILABLE_MAX_S + 1).broken()
    assert late == "unavailable for 9.0 s, promised 8 s"
