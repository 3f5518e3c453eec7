"""The figures of a run, from what it has left."""

from pathlib import Path

import pytest

from helpers.histories import TOPIC, Story, rows
from tidelog.chaos import samples as s
from tidelog.chaos.checker.verdict import Anomaly, Gap, Verdict
from tidelog.chaos.checking import HISTORY
from tidelog.chaos.history import FaultStep, HistoryWriter
from tidelog.chaos.summary import Summary
from tidelog.ids import TopicPartition


def fault(t: float, what: str, target: str, name: str = "kill") -> FaultStep:
    return FaultStep(t, name, what, (target,), f"{name} {target}", 1)


def partitions(t: float, epoch: int, isr: list[int]) -> s.Partitions:
    one = s.PartitionState(
        topic=TOPIC, partition=0, leader=isr[0], leader_epoch=epoch, partition_epoch=1, replicas=[0, 1], isr=isr
    )
    return s.Partitions(t=t, partitions=[one])


def summary(directory: Path, story: Story, *looks: s.Sample) -> Summary:
    with HistoryWriter(directory / HISTORY) as writer:
        for record in sorted(story.records, key=lambda record: record.t):
            writer.append(record)
    (directory / s.FILE_NAME).write_text("".join(s.to_line(look) + "\n" for look in looks))
    return Summary.of(directory)


def test_what_was_sent_and_read_is_counted(tmp_path: Path) -> None:
    story = Story().phase("load").log("a", "b").sent("c", None, "fail").sent("d", None, "info")
    story.at(5.0).phase("heal").end(rows("a", "b"))
    looks = [partitions(0.1, 3, [0, 1]), partitions(1.0, 4, [1]), partitions(4.0, 4, [1, 0])]
    story.records += [fault(0.5, "effect", "broker-0"), fault(3.0, "healed", "broker-0")]
    found = summary(tmp_path, story, *looks)
    verdict = Verdict(
        {"lost-acked": Anomaly(2, False), "unseen": Anomaly(1, False)}, (Gap(TOPIC, 0, "all", 1, 3, True),)
    )
    told = dict(found.rows(verdict))
    assert (told["sent"], told["acknowledged"], told["refused"], told["unknown outcome"]) == ("4", "2", "1", "1")
    assert (told["lost"], told["duplicated"], told["out of order"]) == ("2", "0", "0")
    assert (told["elections"], told["longest time without an acknowledgement"]) == ("1", "2.00 s")
    assert told["last fault over until every ISR was full"] == "1.0 s"
    assert [number for what, number in told.items() if what.startswith("read by")] == ["2", "2"]


@pytest.mark.parametrize(
    ("steps", "seconds"),
    [
        ([fault(1.0, "healed", "broker-0"), fault(3.0, "healed", "broker-1"), fault(8.0, "healed", "agent-1")], 2.0),
        ([fault(1.0, "effect", "broker-0", "restart"), fault(9.0, "healed", "broker-0", "restart")], 4.0),
        ([fault(1.0, "healed", "agent-1")], None),
    ],
    ids=["the last of a server", "it passes", "no server"],
)
def test_the_time_to_full_isrs_counts_from_the_last_fault(
    steps: list[FaultStep], seconds: float | None, tmp_path: Path
) -> None:
    story = Story().phase("load").log("a")
    story.records += steps
    found = summary(tmp_path, story, partitions(2.0, 4, [1]), partitions(5.0, 4, [1, 0]), partitions(9.5, 4, [1, 0]))
    assert found.whole_s == seconds


def test_a_takeover_lasts_until_the_others_own_everything(tmp_path: Path) -> None:
    story = Story().phase("load").at(1.0)
    story.owns(0, process="agent-1", group="g").owns(1, process="agent-2", group="g")
    story.records.append(fault(2.0, "effect", "agent-1"))
    story.at(9.0).owns(0, process="agent-1", group="g", kind="lost").at(9.5).owns(0, 1, process="agent-2", group="g")
    story.at(10.0).processed(0, 9, process="agent-1").processed(5, 19, process="agent-2").at(11.0).phase("heal")
    found = summary(tmp_path, story)
    zero, one = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
    takeover = found.takeover
    assert takeover is not None and (takeover.victim, takeover.seconds) == ("agent-1", 7.5)
    assert takeover.before == {"agent-1": {zero}, "agent-2": {one}}
    assert takeover.after == {"agent-1": set(), "agent-2": {zero, one}}
    assert found.processed == {"agent-1": 10, "agent-2": 15} and found.again == 5


def test_without_an_agent_there_is_no_takeover(tmp_path: Path) -> None:
    story = Story().phase("load").log("a")
    story.records.append(fault(2.0, "effect", "broker-0"))
    assert summary(tmp_path, story).takeover is None
