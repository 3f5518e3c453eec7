#!/usr/bin/env python3
"""Kills a leader and an agent in the middle of a load and shows that nothing acknowledged is lost, and all of it processed.

Plays the scenario `demo` (`tidelog chaos show demo`) on a cluster of its own, with a line for each step, one table, one verdict
and a page.

Ends with 0 if every promise was kept, 1 if one was broken, 2 if records were not accepted (a line over the record limit), 3
without a verdict, 130 after Ctrl-C.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from tidelog.chaos import scenario_file
from tidelog.chaos.agents import FOLDER
from tidelog.chaos.clusters import LocalClusters
from tidelog.chaos.faults.base import On, ends_as_interrupt
from tidelog.chaos.launch import RUNS_DIR, Outcome, launch, next_directory, order
from tidelog.chaos.metrics import ChaosMetrics
from tidelog.chaos.summary import Summary
from tidelog.chaos.yaml_nodes import ScenarioError
from tidelog.cli.chaos_screen import Screen, print_conclusion, print_failovers, print_kept, print_summary
from tidelog.cluster.api import ClusterError
from tidelog.runtime.clock import SystemClock

ROOT = Path(__file__).resolve().parent.parent
SCENARIO = "demo"
ORDERS = "orders: 200000"
CLUSTER = "cluster"
EXIT_REFUSED = 2
EXIT_NO_VERDICT = 3
EXIT_INTERRUPTED = 130


def main() -> int:
    options = arguments()
    clock = SystemClock()
    directory = next_directory(SCENARIO, ROOT / RUNS_DIR)
    clusters = LocalClusters(directory / CLUSTER)
    try:
        with tempfile.TemporaryDirectory() as folder, ends_as_interrupt(), clusters:
            asked = order(str(written(options, Path(folder))), On.LOCAL, options.seed, directory=directory)
            asked = replace(asked, keep_topic=options.keep)
            with Screen(clock, asked) as screen:
                outcome = launch(asked, clusters, clock, screen, ChaosMetrics())
            keep = clusters.outlive = options.keep and outcome.verdict is not None
    except KeyboardInterrupt:
        shutil.rmtree(directory, ignore_errors=True)
        return EXIT_INTERRUPTED
    except (ScenarioError, ClusterError, OSError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return EXIT_NO_VERDICT
    code = told(outcome)
    if not keep and not code:
        shutil.rmtree(directory / CLUSTER, ignore_errors=True)
        shutil.rmtree(directory / FOLDER, ignore_errors=True)
    if keep:
        say_how_to_look(outcome, directory / CLUSTER)
    print_kept(directory)
    return code


def written(options: argparse.Namespace, folder: Path) -> Path:
    """The scenario with the load that was asked for."""
    load = (
        f"orders: {options.records}" if options.input is None else f"lines: {json.dumps(str(options.input.resolve()))}"
    )
    path = folder / f"{SCENARIO}.yaml"
    path.write_text(scenario_file.find(SCENARIO).read_text().replace(ORDERS, load))
    return path


def told(outcome: Outcome) -> int:
    """Prints what became of the run; the exit code."""
    if outcome.verdict is None:
        print(f"demo: {outcome.file.ended}", file=sys.stderr)
        return EXIT_NO_VERDICT
    summary = Summary.of(outcome.directory)
    topic = outcome.file.topics[0]
    print_failovers(outcome.directory)
    print_summary(summary, outcome.verdict, f"topic {topic}: a leader and an agent killed")
    print_conclusion(outcome.verdict)
    if outcome.verdict.exit_code:
        return outcome.verdict.exit_code
    if summary.refused or summary.unknown:
        print(f"Nothing acknowledged was lost; {summary.refused:,} were refused, {summary.unknown:,} not answered.")
        return EXIT_REFUSED
    print("Nothing acknowledged was lost, duplicated or reordered, and all of it was processed.")
    return 0


def say_how_to_look(outcome: Outcome, base: Path) -> None:
    topic, group = outcome.file.topics[0], outcome.file.group
    print(f"""
The cluster goes on (KEEP=1). To look at it:
  export TIDELOG_BOOTSTRAP_SERVERS={outcome.servers}
  .venv/bin/tidelog topics describe {topic}
  .venv/bin/tidelog consume {topic} --from-beginning --max-messages 5
  .venv/bin/tidelog groups describe {group}
  .venv/bin/tidelog local down --dir {base}        # and rm -r {base.parent}""")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    env = os.environ
    parser.add_argument("--input", type=Path, default=env.get("INPUT") or None, help="send this file's lines (INPUT)")
    parser.add_argument("--records", type=positive, default=env.get("RECORDS") or 200_000, help="how many (RECORDS)")
    parser.add_argument("--seed", type=int, default=env.get("SEED") or 1, help="of the generated events (SEED)")
    parser.add_argument("--keep", action="store_true", default=env.get("KEEP") == "1", help="leave it running (KEEP=1)")
    options = parser.parse_args()
    if options.input is not None and not options.input.is_file():
        parser.error(f"INPUT {options.input} is not a file")
    if options.input is not None and not options.input.stat().st_size:
        parser.error(f"INPUT {options.input} is empty: there is nothing to send")
    return options


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError("must be at least 1")
    return number


if __name__ == "__main__":
    sys.exit(main())
