"""A job as a program of its own, for spark-submit: the options of the command line, and plain lines on the standard error."""

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tidelog.config import ClientSettings, load
from tidelog.errors import TidelogError
from tidelog.pipeline.jobs.driver import JobError
from tidelog.pipeline.jobs.flags import Flag, Given, Takes
from tidelog.pipeline.jobs.progress import Progress, Totals, line, summary
from tidelog.pipeline.jobs.streaming import Job, run_job

EXIT_FAILED: Final = 1
EXIT_BAD_INPUT: Final = 2
EXIT_INTERRUPTED: Final = 130


class Lines:
    """A Watcher that writes a line for each micro-batch."""

    def __init__(self, name: str) -> None:
        self._name = name

    def phase(self, what: str) -> None:
        self._say(f"{what} ...")

    def progressed(self, progress: Progress, totals: Totals) -> None:
        self._say(line(progress))

    def _say(self, text: str) -> None:
        sys.stderr.write(f"{self._name}: {text}\n")
        sys.stderr.flush()


def parser(name: str, flags: Sequence[Flag]) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog=name, allow_abbrev=False)
    made.add_argument("--bootstrap-server", metavar="HOST:PORT,...", help="Default: TIDELOG_BOOTSTRAP_SERVERS.")
    for flag in flags:
        options: dict[str, Any] = {"help": flag.about.replace("%", "%%"), "default": argparse.SUPPRESS}
        match flag.takes:
            case Takes.NOTHING:
                options["action"] = "store_true"
            case Takes.MANY | Takes.PAIRS:
                options |= {"action": "append", "metavar": flag.metavar}
            case Takes.ONE:
                options["metavar"] = flag.metavar
        made.add_argument(f"--{flag.name}", **options)
    return made


def run_program(name: str, flags: Sequence[Flag], arguments: Sequence[str], job_of: Callable[[Given], Job]) -> int:
    """Its exit code: 0, 1 failed, 2 not understood (argparse exits by itself), 128 + the number of the signal that
    stopped it before --once was done."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # gRPC's own log goes to the standard error
    given: Mapping[str, Any] = vars(parser(name, flags).parse_args(list(arguments)))
    watcher = Lines(name)
    try:
        servers = given["bootstrap_server"]
        settings = load(ClientSettings, overrides={} if servers is None else {"bootstrap_servers": servers})
        job = job_of({key: value for key, value in given.items() if key != "bootstrap_server"})
        totals, stopped = run_job(job, settings.bootstrap_servers, watcher)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED  # before Spark had started
    except (ValueError, TidelogError, JobError, OSError) as error:
        sys.stderr.write(f"{name}: {error.message if isinstance(error, TidelogError) else error}\n")
        return EXIT_BAD_INPUT if isinstance(error, ValueError) else EXIT_FAILED
    sys.stderr.write(f"{name}: {summary(totals)}\n")
    return 128 + stopped if stopped is not None and job.plan.run.once else 0
