#!/usr/bin/env python3
"""Kills a leader and an agent in the middle of a load and shows that nothing acknowledged is lost, and all of it processed.

Starts a cluster of real processes with two agents of one group, which process what is sent. Streams records with acks=all,
kills the leader of partition 0 and one agent half way with SIGKILL, goes on, restarts the leader, waits until every ISR is
full and the other agent has processed everything, reads everything back through Spark and compares record by record, also
with what the agents have written.

Ends with 0 if nothing acknowledged is missing, out of order or not processed, 1 if something is, 2 if records were not
accepted (a line over the record limit), 3 if the run itself failed, 130 after Ctrl-C.
"""

import argparse
import asyncio
import contextlib
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from tidelog.chaos.launch import RUNS_DIR, next_directory
from tidelog.chaos.ledger import Findings, Ledger
from tidelog.cluster.api import ClusterError, bootstrap_servers
from tidelog.cluster.local import LocalCluster
from tidelog.demo import agents
from tidelog.demo.page import Recording
from tidelog.demo.readback import read_back
from tidelog.demo.records import Outgoing, lines, order_events
from tidelog.demo.run import PARTITIONS, TOPIC, stream
from tidelog.demo.verdict import Verdict
from tidelog.errors import TidelogError
from tidelog.release import VERSION
from tidelog.runtime.clock import SystemClock
from tidelog.runtime.tasks import TaskFailed

ROOT = Path(__file__).resolve().parent.parent
RECORD_BYTES_MAX = 1_048_588
"""The default of max.message.bytes; what a batch adds to a line is refused by the producer."""
SHORT_LIVED_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Half the processor time of a JVM that lives for seconds: the second compiler never pays back."""
EXIT_FAILED = 3
EXIT_INTERRUPTED = 130


class SparkFailed(Exception):
    """There is no verdict."""


class Screen:
    """A line for each step and one progress bar."""

    def __init__(self) -> None:
        self._console = Console()
        self._clock = SystemClock()
        self._started_at = self._clock.now()
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._every = 1
        self._next = 0

    def say(self, what: str) -> None:
        self._console.print(
            f"[dim]{self._clock.now() - self._started_at:6.1f} s[/dim]  {what}", highlight=False, soft_wrap=True
        )

    def begin(self, what: str, total: int) -> None:
        columns = (SpinnerColumn(), TextColumn(what), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=self._console, transient=True)
        self._task = self._bar.add_task(what, total=total)
        self._every = max(1, total // 500)
        self._next = 0
        self._bar.start()

    def progress(self, done: int) -> None:
        if self._bar is not None and self._task is not None and done >= self._next:
            self._bar.update(self._task, completed=done)
            self._next = done + self._every

    def end(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def table(self, verdict: Verdict) -> None:
        streamed, found = verdict.streamed, verdict.found
        rate = streamed.acked / streamed.seconds if streamed.seconds else 0.0
        rows = [
            ("sent", f"{streamed.sent:,}"),
            ("acked", f"{streamed.acked:,}"),
            ("refused", f"{streamed.refused:,}"),
            *([("unknown outcome", f"{streamed.unknown:,}")] if streamed.unknown else []),
            ("read", f"{found.read:,}"),
            ("lost", f"{found.lost:,}"),
            ("duplicated", f"{found.duplicated:,}"),
            ("out of order", f"{found.out_of_order:,}"),
            *((name, f"{getattr(found, name):,}") for name in _RARE if getattr(found, name)),
            ("elections", f"{streamed.elections}"),
            ("longest time without an ack", f"{streamed.longest_without_ack_s:.2f} s"),
            ("restart until every ISR was full", f"{streamed.full_isr_s:.2f} s"),
            ("acked per second", f"{rate:,.0f}"),
        ]
        table = Table("what", "how much", title=f"topic {TOPIC}, acks=all, one leader killed")
        table.columns[1].justify = "right"
        for row in rows:
            table.add_row(*row)
        self._console.print(table)
        self._console.print(group_table(verdict))

    def verdict(self, verdict: Verdict) -> None:
        streamed, found = verdict.streamed, verdict.found
        match verdict.exit_code:
            case 0:
                self._console.print(
                    "[bold green]Nothing acknowledged was lost, duplicated or reordered, and all of it was processed.[/]"
                )
            case 1:
                broken = [f"{getattr(found, name):,} {name.replace('_', ' ')}" for name in (*_PROMISED, *_RARE)]
                broken.append(f"{verdict.processed.found.lost:,} not processed")
                self._console.print(f"[bold red]The promise was broken: {', '.join(broken)}.[/]")
            case _:
                rest = f"{streamed.refused:,} were refused, {streamed.unknown:,} not answered"
                self._console.print(
                    f"[bold yellow]Nothing acknowledged was lost, duplicated or reordered, and all of it was processed; "
                    f"but {rest}.[/]"
                )


def group_table(verdict: Verdict) -> Table:
    takeover, processed = verdict.streamed.takeover, verdict.processed
    title = f"group {agents.GROUP}: {agents.VICTIM} killed, taken over by {agents.HEIR} after {takeover.seconds:.2f} s"
    table = Table("what", *agents.AGENTS, "both", title=title)
    for column in table.columns[1:]:
        column.justify = "right"
    for what, owned in (("partitions before", takeover.before), ("partitions after", takeover.after)):
        table.add_row(what, *(agents.listed(owned[name]) for name in agents.AGENTS), "")
    counts = [f"{processed.by_agent[name]:,}" for name in agents.AGENTS]
    table.add_row("records processed", *counts, f"{sum(processed.by_agent.values()):,}")
    table.add_row("processed again", "", "", f"{processed.again:,}")
    table.add_row("acked and not processed", "", "", f"{processed.found.lost:,}")
    for name in _RARE:
        if number := getattr(processed.found, name):
            table.add_row(f"processed {name}", "", "", f"{number:,}")
    return table


_PROMISED = ("lost", "duplicated", "out_of_order")
_RARE = ("altered", "misplaced", "foreign")


def main() -> int:
    options = arguments()
    screen = Screen()
    (ROOT / "data").mkdir(exist_ok=True)
    base = Path(tempfile.mkdtemp(prefix="demo-", dir=ROOT / "data"))
    cluster = LocalCluster(base / "cluster")
    directory = next_directory("demo", ROOT / RUNS_DIR)
    keep_running = keep_files = False
    page: Path | None = None
    try:
        verdict, recording = run(options, cluster, base, directory, screen)
        page = recording.write(verdict, TOPIC)
        screen.table(verdict)
        screen.verdict(verdict)
        keep_running = options.keep
        keep_files = verdict.exit_code == 1  # what happened is in the logs
        return verdict.exit_code
    except KeyboardInterrupt:
        screen.end()
        screen.say("interrupted; ending every process")
        return EXIT_INTERRUPTED
    except (ClusterError, TidelogError, TaskFailed, OSError, SparkFailed) as error:
        screen.end()
        keep_files = True
        print(f"demo: {error}", file=sys.stderr)
        return EXIT_FAILED
    finally:
        if keep_running:
            cluster.leave_running()
            say_how_to_look(cluster)
        else:
            cluster.down(grace_s=0.0)
            if keep_files:
                screen.say(f"the files of this run are in {base}")
            else:
                shutil.rmtree(base, ignore_errors=True)
                if page is None:
                    shutil.rmtree(directory, ignore_errors=True)
        if page is not None:
            print(f"the whole run on one page: {page}")


def run(
    options: argparse.Namespace, cluster: LocalCluster, base: Path, directory: Path, screen: Screen
) -> tuple[Verdict, Recording]:
    """`base` is where the files of this run are; `directory` gets what its page is made from."""
    records, total, what = source(options)
    ledger_path, processed_by = base / "ledger", base / "processed"
    processed_by.mkdir()
    screen.say(f"starting ZooKeeper, 2 controllers, 3 brokers and {len(agents.AGENTS)} agents")
    cluster.up(agents=len(agents.AGENTS), settings=agents.settings(TOPIC, processed_by))
    screen.say(f"the cluster serves at {bootstrap_servers(cluster)}")
    ledger = Ledger(ledger_path, writable=True)
    recording = Recording(directory, SystemClock(), about(options, what))
    screen.begin(f"sending {what}", total)
    streamed = asyncio.run(stream(cluster, records, total, ledger, SystemClock(), screen, recording))
    screen.end()
    screen.say(f"{streamed.acked:,} of {streamed.sent:,} records acknowledged; reading them back through Spark")
    found = read_with_spark(bootstrap_servers(cluster), ledger_path)
    screen.say(f"read and compared {found.read:,} records; comparing what the agents have written")
    return Verdict(streamed, found, agents.compare(processed_by, PARTITIONS, ledger_path)), recording


def about(options: argparse.Namespace, what: str) -> dict[str, Any]:
    """Of the run, for its page."""
    given = {"INPUT": options.input, "RECORDS": options.records, "SEED": options.seed}
    words = [f"{name}={value}" for name, value in given.items() if value is not None]
    title = f"a leader and an agent are killed in the middle of {what}"
    return {
        "title": title,
        "seed": options.seed,
        "version": VERSION,
        "command": f"{' '.join(words)} make demo",
    }


def source(options: argparse.Namespace) -> tuple[Iterable[Outgoing], int, str]:
    """Records, the total in their unit of progress, and what they are."""
    if options.input is None:
        events = order_events(options.records, Random(options.seed), SystemClock().wall_ms())
        return events, options.records, f"{options.records:,} order events"
    size = options.input.stat().st_size
    if size == 0:
        raise ClusterError(f"{options.input} is empty: there is nothing to send")
    return lines(options.input.open("rb"), RECORD_BYTES_MAX), size, f"the lines of {options.input.name}"


def read_with_spark(servers: str, ledger_path: Path) -> Findings:
    from pyspark.errors import PySparkException  # a second of imports, and a JVM, that only this step needs

    from tidelog.pipeline.session import spark_session

    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # it would print a traceback of our own Ctrl-C
    try:
        with jvm_chatter_to(ledger_path.with_name("spark.log")):
            spark = spark_session("tidelog-demo", settings={"spark.driver.extraJavaOptions": SHORT_LIVED_JVM})
        try:
            return read_back(spark, servers, TOPIC, PARTITIONS, ledger_path)
        finally:
            spark.stop()
    except PySparkException as error:
        raise SparkFailed(f"Spark could not read the topic back: {error}") from error


@contextlib.contextmanager
def jvm_chatter_to(path: Path) -> Iterator[None]:
    """A JVM started within keeps writing its warnings there; its errors reach us as exceptions."""
    saved = os.dup(2)
    with path.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)


def say_how_to_look(cluster: LocalCluster) -> None:
    servers = bootstrap_servers(cluster)
    print(f"""
The cluster goes on (KEEP=1). To look at it:
  .venv/bin/tidelog topics describe {TOPIC} --bootstrap-server {servers}
  .venv/bin/tidelog consume {TOPIC} --from-beginning --max-messages 5 --bootstrap-server {servers}
  .venv/bin/tidelog groups describe {agents.GROUP} --bootstrap-server {servers}
  .venv/bin/tidelog local status --dir {cluster.base}
  .venv/bin/tidelog local down --dir {cluster.base}        # and rm -r {cluster.base.parent}""")


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
    return options


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError("must be at least 1")
    return number


if __name__ == "__main__":
    sys.exit(main())
