"""Alerts and recorded queries: Prometheus' own tool reads them, and runs their tests."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from dashboards.alerts import ALERTS, CRITICAL, WARNING
from dashboards.boards import BOARDS
from dashboards.marks import MARKS
from dashboards.rules import RECORDINGS
from dashboards.zoom import Zoom
from helpers.prometheus import DEPLOYED, promtool, why_not

needs_promtool = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
TESTS = DEPLOYED / "tests"
AFTER_A_FAULT_S = 120
LASTING = {
    "CrashLoop": "a planned restart is no loop",
    "UncleanLeaderElection": "records may be gone",
    "AcknowledgedRecordsLost": "records are gone",
    "TaskFailed": "a bug",
    **dict.fromkeys(("GroupLag", "GroupStopped"), "they look back for members, and end with the lag"),
    "NoMessageForTooLong": "what stops writing is no fault of the cluster",
}
"""Alerts that last longer than their fault, and why a healed cluster may show them."""
SECONDS = {"s": 1, "m": 60, "h": 3600}


def cases_in(names: str) -> list[dict[str, Any]]:
    return [case for path in sorted(TESTS.glob(names)) for case in yaml.safe_load(path.read_text())["tests"]]


@needs_promtool
def test_prometheus_reads_the_configuration_with_its_rules() -> None:
    done = promtool(DEPLOYED, "check", "config", "--lint=all", "--lint-fatal", "prometheus.yml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(ALERTS)} rules found" in done.stdout and f"{len(RECORDINGS)} rules found" in done.stdout


@needs_promtool
@pytest.mark.parametrize("name", sorted(path.name for path in TESTS.glob("*.yml")))
def test_rules_do_what_their_tests_say(name: str) -> None:
    done = promtool(DEPLOYED, "test", "rules", f"tests/{name}")
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_a_test_of_a_rule_can_fail(tmp_path: Path) -> None:
    """With a rule whose patience is gone."""
    rules = (DEPLOYED / "rules" / "alerts.yml").read_text()
    assert "for: 60s" in rules
    for folder in ("rules", "tests"):
        (tmp_path / folder).mkdir()
    (tmp_path / "rules" / "alerts.yml").write_text(rules.replace("for: 60s", "for: 2s"))
    tests = yaml.safe_load((TESTS / "alerts.yml").read_text())
    tests["tests"] = [case for case in tests["tests"] if "ProcessDown" in json.dumps(case)]
    (tmp_path / "tests" / "alerts.yml").write_text(json.dumps(tests))
    done = promtool(tmp_path, "test", "rules", "tests/alerts.yml")
    assert done.returncode != 0 and "ProcessDown" in done.stdout + done.stderr


@needs_promtool
def test_prometheus_parses_the_query_of_every_panel(tmp_path: Path) -> None:
    zoom = Zoom(range_s=900)
    queries = {zoom.filled(q, panel.kind) for board in BOARDS for panel in board.panels for q in panel.queries}
    queries |= {mark.query for mark in MARKS}
    assert not any(re.search(r"\$[a-z_]", query) for query in queries), "a variable that nothing fills"
    rules = [{"record": f"panel:{number}", "expr": query} for number, query in enumerate(sorted(queries))]
    (tmp_path / "panels.yml").write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    done = promtool(tmp_path, "check", "rules", "--lint=none", "panels.yml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(queries)} rules found" in done.stdout


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: str(alert.name))
def test_each_alert_has_a_test_in_which_it_fires_and_one_in_which_it_does_not(alert: Any) -> None:
    said = [
        each for test in cases_in("alerts*.yml") for each in test["alert_rule_test"] if each["alertname"] == alert.name
    ]
    assert any(each.get("exp_alerts") for each in said)
    assert any(not each.get("exp_alerts") for each in said)


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: str(alert.name))
def test_an_alert_ends_with_its_fault(alert: Any) -> None:
    windows = [int(number) * SECONDS[unit] for number, unit in re.findall(r"\[(\d+)([smh])", alert.query)]
    assert (max(windows, default=0) > AFTER_A_FAULT_S) == (alert.name in LASTING)


def test_each_recorded_query_has_a_test() -> None:
    tested = {each["expr"] for test in cases_in("recording.yml") for each in test["promql_expr_test"]}
    assert tested == {recording.name for recording in RECORDINGS}


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: str(alert.name))
def test_an_alert_says_how_bad_it_is_what_to_do_and_how_it_is_proved(alert: Any) -> None:
    assert alert.severity in (CRITICAL, WARNING)
    assert alert.summary.endswith(".") and len(alert.summary) < 120
    assert alert.what_to_do.endswith(".") and alert.what_to_do != alert.summary
    assert alert.proofs and all(proof.of is None for proof in alert.proofs)
    titles = {board.title for board in BOARDS} | {row for board in BOARDS for row in board.rows}
    assert set(re.findall(r"\*([^*]+)\*", alert.what_to_do)) <= titles
    others = {each.name for each in ALERTS}
    assert set(re.findall(r"See (\w+)\.", alert.what_to_do)) <= others


def test_names_are_alone() -> None:
    assert len({alert.name for alert in ALERTS}) == len(ALERTS)
    assert len({recording.name for recording in RECORDINGS}) == len(RECORDINGS)
