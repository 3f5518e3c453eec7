"""What a demo says on its page of what it found."""

from dataclasses import replace

import pytest

from tidelog.chaos.ledger import Findings, Outcome
from tidelog.chaos.report.page import read_run
from tidelog.demo.agents import Processed, Takeover
from tidelog.demo.page import Recording, judgement
from tidelog.demo.verdict import Streamed, Verdict

STREAMED = Streamed(3, 3, 0, 0, 4, 1.5, 0.5, 9.0, Takeover({}, {}, 2.0), {0: (101.0, 102.5), 1: (100.5, 100.6)})
FINE = Verdict(STREAMED, Findings(read=3), Processed({}, 7, Findings(read=3)))
CASES = {
    "fine": FINE,
    "lost": replace(FINE, found=Findings(lost=1)),
    "duplicated": replace(FINE, found=Findings(duplicated=1)),
    "out of order": replace(FINE, found=Findings(out_of_order=1)),
    "altered": replace(FINE, found=Findings(altered=1)),
    "misplaced": replace(FINE, found=Findings(misplaced=1)),
    "foreign": replace(FINE, found=Findings(foreign=1)),
    "not processed": replace(FINE, processed=Processed({}, 0, Findings(lost=1))),
    "something else processed": replace(FINE, processed=Processed({}, 0, Findings(foreign=1))),
}


@pytest.mark.parametrize("verdict", CASES.values(), ids=CASES)
def test_the_page_judges_as_the_exit_code_does(verdict):
    assert judgement(verdict, ()).exit_code == verdict.exit_code


def test_what_was_not_accepted_is_a_note_and_no_broken_promise():
    found = judgement(replace(FINE, streamed=replace(STREAMED, refused=2, unknown=1)), ())
    assert found.exit_code == 0
    assert "2 records were refused, and 1 not answered." in found.notes


class Clock:
    def __init__(self):
        self.at = 100.0

    def now(self):
        return self.at

    def wall_ms(self):
        return 1_790_000_000_000


def test_a_recording_is_a_run_that_can_be_read_back(tmp_path):
    clock = Clock()
    recording = Recording(tmp_path / "demo-1", clock, {"title": "a title", "command": "make demo"})
    recording.phase("send")
    recording.outcome(Outcome.ACKED, 100.2, 100.3)
    recording.outcome(Outcome.PENDING, 100.2, 104.0)
    clock.at = 101.0
    recording.fault(1, "kill leader of events-0", "begin", "broker-1")
    clock.at = 101.5
    recording.fault(1, "kill leader of events-0", "effect", "broker-1")
    clock.at = 105.0
    recording.end()
    clock.at = 160.0  # reading back takes its time, which is none of the time line's
    page = recording.write(FINE, "events")
    run = read_run(page.parent)
    assert (run.about["name"], run.about["title"], run.timeline.until) == ("demo", "a title", 5.0)
    (fault,) = run.timeline.faults
    assert (fault.targets, fault.in_force(5.0)) == (("broker-1",), (1.5, 5.0))
    assert run.timeline.sends.totals == {"all": {"ok": 1, "info": 1}}
    assert [(gap.partition, gap.began, gap.ended) for gap in run.verdict.gaps] == [
        (0, 1.0, 2.5),
        (1, 0.5, pytest.approx(0.6)),
    ]
    assert "Nothing is wrong in the history" in page.read_text()
