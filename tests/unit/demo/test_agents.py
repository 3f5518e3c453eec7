"""What the demo's agents have written, compared with the ledger; written by the handler that they run."""

import pytest

from helpers.aio import run
from tidelog.agent.files import FileHandler
from tidelog.chaos.ledger import SEQUENCE, SEQUENCE_HEADER, Findings, Ledger, digest
from tidelog.client.records import ConsumerRecord
from tidelog.demo.agents import AGENTS, HEIR, VICTIM, compare, listed
from tidelog.runtime.os_disk import OsDisk

VALUES = [b"text", b"\xff\x00", b"", "я".encode(), None, b'{"json": "\\n"}']
PARTITIONS = 2


def record(number):
    """Numbers go to the partitions in turn."""
    header = (SEQUENCE_HEADER, SEQUENCE.pack(number))
    key = b"k" if number % 3 else None
    return ConsumerRecord("t", number % 2, number // 2, 1, 0, key, VALUES[number], (header,), 0)


@pytest.fixture
def ledger(tmp_path):
    made = Ledger(tmp_path / "ledger", writable=True)
    for number in range(len(VALUES)):
        sent = record(number)
        made.sent(digest(sent.key, sent.value))
        made.acked(number, sent.partition, sent.offset)
    made.close()
    return tmp_path / "ledger"


@pytest.fixture
def process(tmp_path):
    for name in AGENTS:
        (tmp_path / name).mkdir()

    def handle(name, *records):
        async def story():
            handler = FileHandler(OsDisk(), str(tmp_path / name), "jsonl", 1 << 20, name)
            await handler.handle(records)
            await handler.flush()

        run(story())

    return handle


def test_each_record_that_one_of_them_processed_counts_once_and_again_if_it_came_again(process, ledger, tmp_path):
    process(VICTIM, *(record(n) for n in (0, 2, 1)))
    process(HEIR, *(record(n) for n in (2, 4, 3, 5)))
    found = compare(tmp_path, PARTITIONS, ledger)
    assert found.by_agent == {VICTIM: 3, HEIR: 4} and found.again == 1
    assert found.found == Findings(read=6) and found.found.sound


def test_what_nobody_processed_is_lost(process, ledger, tmp_path):
    process(VICTIM, record(0), record(2))
    process(HEIR, record(1), record(5))
    found = compare(tmp_path, PARTITIONS, ledger)
    assert found.found == Findings(read=4, lost=2) and not found.found.sound


def test_a_copy_that_is_not_what_was_sent_is_seen_beside_a_good_one(process, ledger, tmp_path):
    everything = [record(n) for n in range(len(VALUES))]
    process(VICTIM, *everything)
    process(HEIR, record(3)._replace(value=b"other"), record(1)._replace(headers=()))
    found = compare(tmp_path, PARTITIONS, ledger)
    assert found.found.altered == 1 and found.found.foreign == 1 and not found.found.sound


def test_nobody_processed_anything(process, ledger, tmp_path):
    assert compare(tmp_path, PARTITIONS, ledger).found == Findings(lost=6)


def test_partitions_are_listed_in_order():
    assert (listed([10, 2, 0]), listed([])) == ("0 2 10", "none")
