"""What `tidelog pipeline run audit` prints and returns of what was judged."""

from pathlib import Path

import pytest

from tidelog.chaos.checker.verdict import Anomaly, Kept, Verdict
from tidelog.chaos.history import HistoryDamaged
from tidelog.cli.pipeline_audit import as_json, exit_code, print_judged
from tidelog.pipeline.jobs.audit.judged import Judged

STATS = {"sends": 5, "ok": 4, "records_read": 8}
SOUND = Judged(Path("a"), Verdict({"unseen": Anomaly(0, False)}, promises=(Kept("p", True, "0", "0"),), stats=STATS))
BROKEN = Judged(Path("b"), Verdict({"unseen": Anomaly(3, False)}, promises=(Kept("p", False, "3", "0"),), stats=STATS))
CUT = Judged(Path("c"), Verdict({}, stats=STATS, complete=False))
NONE = Judged(Path("d"), HistoryDamaged(Path("d/history.jsonl"), 7, "the id 1 is in use"))


@pytest.mark.parametrize(
    "judged, code",
    [([SOUND], 0), ([SOUND, BROKEN], 1), ([SOUND, NONE], 3), ([CUT, SOUND], 3), ([CUT, BROKEN, NONE], 1)],
)
def test_a_broken_run_is_worse_than_one_without_a_verdict(judged: list[Judged], code: int) -> None:
    assert exit_code(judged) == code


def test_one_run_is_its_verdict_and_several_are_a_list() -> None:
    assert isinstance(SOUND.verdict, Verdict)
    assert as_json([SOUND]) == SOUND.verdict.to_json()
    first, second = as_json([SOUND, NONE])
    assert first == {"directory": "a", "verdict": SOUND.verdict.to_json(), "why": None}
    assert second["verdict"] is None and second["why"] == "d/history.jsonl, line 7: the id 1 is in use"


def test_several_runs_are_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    print_judged([SOUND, BROKEN, NONE])
    printed = capsys.readouterr()
    table = printed.out.splitlines()[-4:]
    assert table[0].split() == ["RUN", "VERDICT", "SENDS", "ACKED", "READ", "ANOMALIES", "PROMISES-KEPT"]
    assert [line.split() for line in table[1:]] == [
        ["a", "SOUND", "5", "4", "8", "0", "1/1"],
        ["b", "BROKEN", "5", "4", "8", "3", "0/1"],
        ["d", "NO", "VERDICT", "-", "-", "-", "-", "-"],
    ]
    assert "no verdict: d/history.jsonl, line 7" in printed.err
