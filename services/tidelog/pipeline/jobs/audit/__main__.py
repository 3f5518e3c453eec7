"""For spark-submit: RUN_DIR... are judged, and a line of JSON says what came out of each."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from tidelog.chaos.checker.verdict import EXIT_NO_VERDICT, Verdict, worst
from tidelog.errors import TidelogError

EXIT_BAD_INPUT = 2


def main(arguments: Sequence[str]) -> int:
    """The exit code, as of `tidelog chaos check`; the worst of several runs."""
    parser = argparse.ArgumentParser(prog="audit", description="Judge the directories of chaos runs.")
    parser.add_argument("directories", metavar="RUN_DIR", nargs="+", type=Path)
    parser.add_argument("--master", default=None, help="Default: what spark-submit was told, else local[*].")
    given = parser.parse_args(list(arguments))
    from tidelog.pipeline.jobs.audit.runs import SETTINGS, judge_runs, open_run
    from tidelog.pipeline.session import spark_session

    try:
        opened = [open_run(directory, _say) for directory in given.directories]
        spark = spark_session(
            "tidelog-audit", **({} if given.master is None else {"master": given.master}), settings=SETTINGS
        )
        try:
            judged = judge_runs(spark, opened, _say)
        finally:
            spark.stop()
    except TidelogError as error:
        sys.stderr.write(f"audit: {error}\n")
        return EXIT_NO_VERDICT
    exit_codes = []
    for each in judged:
        told = each.verdict.to_json() if isinstance(each.verdict, Verdict) else None
        why = None if told is not None else str(each.verdict)
        sys.stdout.write(json.dumps({"directory": str(each.directory), "verdict": told, "why": why}) + "\n")
        exit_codes.append(each.verdict.exit_code if isinstance(each.verdict, Verdict) else EXIT_NO_VERDICT)
    return worst(exit_codes)


def _say(what: str, rows: int) -> None:
    sys.stderr.write(f"audit: {what}: {rows:,} rows\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
