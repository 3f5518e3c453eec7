#!/usr/bin/env python3
"""Writes what is made from code, or checks that it is up to date: of the boards, alerts and recorded queries in
scripts/dashboards deploy/grafana/dashboards/*.json, deploy/prometheus/rules/*.yml, docs/runbook.md and docs/faults.md; of the
classes of settings and errors docs/operations/settings.md and error-codes.md; of events of the lab docs/internals/steps.md.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import yaml

import reference
import steps_page
from dashboards import pages
from dashboards.alerts import GROUPS_OF_RULES, Alert
from dashboards.boards import BOARDS
from dashboards.draw import text
from dashboards.rules import RECORDINGS, Recording

ROOT: Final = Path(__file__).resolve().parent.parent
GRAFANA: Final = ROOT / "deploy" / "grafana" / "dashboards"
RULES: Final = ROOT / "deploy" / "prometheus" / "rules"
HEADER: Final = "# Generated from scripts/dashboards by `make generate`; a change made here would be lost.\n"


def recorded(recording: Recording) -> dict[str, Any]:
    return {"record": recording.name, "expr": recording.query}


def alerting(alert: Alert) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.query,
        **({"for": f"{alert.for_s}s"} if alert.for_s else {}),
        "labels": {"severity": alert.severity},
        "annotations": {
            "summary": alert.summary,
            "description": alert.what_to_do,
            "runbook_url": pages.runbook_of(alert),
        },
    }


def rules(groups: dict[str, Sequence[dict[str, Any]]]) -> str:
    plain = {"groups": [{"name": f"tidelog-{name}", "rules": list(each)} for name, each in groups.items()]}
    return HEADER + yaml.safe_dump(plain, sort_keys=False, width=120, allow_unicode=True)


def files() -> dict[Path, str]:
    alerts = {name: [alerting(alert) for alert in each] for name, each in GROUPS_OF_RULES.items()}
    return {
        **{GRAFANA / f"{board.uid}.json": text(board) for board in BOARDS},
        RULES / "alerts.yml": rules(dict(alerts)),
        RULES / "recording.yml": rules({"recording": [recorded(each) for each in RECORDINGS]}),
        ROOT / pages.RUNBOOK: pages.runbook(),
        ROOT / pages.FAULTS: pages.faults(),
        ROOT / reference.SETTINGS: reference.settings(),
        ROOT / reference.ERROR_CODES: reference.error_codes(),
        ROOT / steps_page.PAGE: steps_page.page(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if a file differs; write nothing")
    check = parser.parse_args().check
    made = files()
    there = {path for folder, kind in ((GRAFANA, "*.json"), (RULES, "*.yml")) for path in folder.glob(kind)}
    stale = [path for path, content in made.items() if not path.exists() or path.read_text() != content]
    foreign = sorted(there - made.keys())
    if check and (stale or foreign):
        names = ", ".join(str(path.relative_to(ROOT)) for path in stale + foreign)
        sys.exit(f"not up to date: {names}; run make generate")
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(made[path])
    for path in foreign:
        path.unlink()
    print(f"{len(made)} files, {len(stale)} {'stale' if check else 'written'}")


if __name__ == "__main__":
    main()
