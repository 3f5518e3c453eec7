"""Protocol events in the log of a process."""

from helpers.log_events import captured_logs
from tidelog.ids import TopicPartition
from tidelog.testing.clock import ManualClock
from tidelog.watch.logged import LoggedRing
from tidelog.wire import messages as m

TP = TopicPartition("events", 0)


def test_rare_kinds_are_a_line_in_the_words_of_watch() -> None:
    ring = LoggedRing("broker-1", 1, ManualClock())
    with captured_logs() as lines:
        ring.record(None, m.ControllerElected(controller_epoch=7))
        ring.record(TP, m.EpochStarted(leader_epoch=1, start=0))
        ring.record(TP, m.LogReset(from_offset=3, to_offset=9))
        ring.record_all([(TP, lambda: m.EpochStarted(leader_epoch=2, start=0))])
    assert [(line["level"], line["event"]) for line in lines] == [
        ("INFO", "is elected controller, epoch 7"),
        ("WARNING", "events-0: drops its log, which ended at 3, and begins at 9"),
    ]
    assert ring.newest == 4
