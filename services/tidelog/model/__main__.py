"""`python -m tidelog.model [--only MUT-4,3.6] [--jobs 2]`: the abstract model, searched breadth first (reliability 3, 5.2).

Exit code 1 if a rule set that should hold is violated, or if a mutant is not found.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence

from tidelog.model import report, runner
from tidelog.model.catalogue import Check, chosen
from tidelog.model.search import Progress

CLEAR_LINE = "\r\x1b[K"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tidelog.model", description=__doc__)
    parser.add_argument("--only", default="", help="keys or sections with commas: MUT-4, 3.6, right, mutants")
    parser.add_argument(
        "--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes (default: every core)"
    )
    arguments = parser.parse_args()
    try:
        checks = chosen(arguments.only)
    except ValueError as error:
        parser.error(str(error))
    if arguments.jobs < 1:
        parser.error("--jobs must be at least 1")
    began = time.monotonic()
    finished = {}
    for each in runner.run(checks, arguments.jobs, time.monotonic, show):
        finished[checks.index(each.check)] = each
        clear()
        if each.outcome.violation is not None:
            sys.stdout.write(report.story(each) + "\n")
        sys.stdout.write(f"{each.check.key} ({each.check.section}, {each.check.bounds}): {each.result}, ")
        sys.stdout.write(f"{each.outcome.states:,} states, {each.took_s:.1f} s\n\n")
        sys.stdout.flush()
    in_order = [finished[index] for index in sorted(finished)]
    wrong = [each for each in in_order if not each.as_expected]
    states = sum(each.outcome.states for each in in_order)
    sys.stdout.write(report.table(in_order) + "\n")
    sys.stdout.write(f"{len(in_order)} checks, {states:,} states, {time.monotonic() - began:.0f} s\n")
    if wrong:
        sys.exit("model: FAILED: " + "; ".join(f"{each.check.key} {each.result}" for each in wrong))


def show(running: Sequence[tuple[Check, Progress, float]]) -> None:
    if sys.stdout.isatty() and running:
        line = " | ".join(report.progress_line(check, progress, took_s) for check, progress, took_s in running)
        sys.stdout.write(CLEAR_LINE + line[: os.get_terminal_size().columns - 1])
        sys.stdout.flush()


def clear() -> None:
    if sys.stdout.isatty():
        sys.stdout.write(CLEAR_LINE)


if __name__ == "__main__":
    main()
