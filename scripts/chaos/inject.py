#!/usr/bin/env python3
"""Injects one fault by hand under a load of its own, heals it, whatever happens, and judges every record of the load.

It takes the cluster that --on names, else the one at TIDELOG_BOOTSTRAP_SERVERS, else the one that runs: that of `local up` in
this directory, or the containers of `docker compose up`. If both run, it stops. If none does, or if links of local processes are
to be cut, it starts one of its own.

The load goes to a new topic, which is deleted at the end unless a promise was broken. With --topic, targets like `leader of 0`
mean partitions of that topic; nothing is written to it.

TARGET is a process (broker-1) or a role: leader of 0, follower of 0, controller, standby controller, zookeeper leader,
coordinator of GROUP, all brokers, minority brokers, clients, everything; several with `and`.

Ends with 0 when every promise was kept, 1 when one was broken or the cluster was not whole again in time, 2 for bad usage, 3 when
there is no verdict (the fault did not take effect, the cluster is not there), 130 after Ctrl-C.
"""

import argparse
import json
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from clusters import EXIT_INTERRUPTED, EXIT_NO_VERDICT, add_options, chosen, open_cluster

from tidelog.chaos import quantities
from tidelog.chaos.clusters import Given
from tidelog.chaos.faults.base import Fault, On, ends_as_interrupt
from tidelog.chaos.faults.registry import FAULTS, fault_named, make, parameters_of
from tidelog.chaos.launch import Outcome, launch, next_directory, order
from tidelog.chaos.metrics import ChaosMetrics
from tidelog.chaos.report.page import FILE_NAME
from tidelog.chaos.summary import Summary
from tidelog.chaos.targets import Target, check_hits, parse
from tidelog.chaos.yaml_nodes import ScenarioError
from tidelog.cli.chaos_screen import Screen, print_conclusion, print_failovers, print_summary
from tidelog.cluster.api import BROKER, ZOOKEEPER, Cluster, ClusterError
from tidelog.runtime.clock import SystemClock

KILL_LEADER = "kill-leader"
"""Not a fault of its own: the fault `kill`, aimed at a leader, with a promise of how long clients wait at most."""
TARGETS = {
    "rolling-restart": "all brokers",
    "lose-quorum": "majority zookeepers",
    "wipe": "follower of 0",
    "torn-tail": "follower of 0",
    "bit-flip": "follower of 0",
}
"""Where the leader of partition 0 is not what one would take."""
BETWEEN_CONTAINERS = {"slow-link": {"peers": "clients"}}
"""Parameters of a fault whose own default is not possible there."""
AFTER_S = 2.0
EXIT_USAGE = 2
UNAVAILABLE_MAX = "8s"
"""The session timeout (6 s) and an election (2 s)."""


@dataclass(frozen=True, slots=True)
class Asked:
    name: str
    """The script's."""
    fault: Fault
    target: Target
    given: Mapping[str, str]
    """Parameters of the fault, as they were written."""
    options: argparse.Namespace

    def on(self, on: On) -> Self:
        """The same there. ValueError when the fault is not possible there."""
        given = {**(BETWEEN_CONTAINERS.get(self.name, {}) if on is On.COMPOSE else {}), **self.given}
        fault = make(type(self.fault), given)
        if why := fault.why_not(on):
            raise ValueError(f"not with --on {on}: {why}")
        return replace(self, fault=fault, given=given)


def main() -> int:
    asked = arguments(sys.argv[1:])
    clock, metrics = SystemClock(), ChaosMetrics()
    zookeepers = 3 if ZOOKEEPER in asked.target.kinds else 1
    try:
        choice = chosen(asked.options)
        on = On.LOCAL if choice.project is None else On.COMPOSE
        try:
            asked = asked.on(on)
        except ValueError as error:
            print(f"{asked.name}: {error}", file=sys.stderr)
            return EXIT_USAGE
        with (
            ends_as_interrupt(),
            tempfile.TemporaryDirectory() as folder,
            open_cluster(choice, note, links_through_proxy=asked.fault.needs_proxy, zookeepers=zookeepers) as cluster,
            Given(cluster) as clusters,
            metrics.served(clusters.scrape_targets, note),
        ):
            path = Path(folder) / f"{asked.name}.yaml"
            path.write_text(scenario(asked, on, cluster))
            ordered = order(str(path), on, None, directory=next_directory(asked.name))
            with Screen(clock, ordered) as screen:
                outcome = launch(ordered, clusters, clock, screen, metrics)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # hit once more, it finds nothing left to interrupt
        print(f"{asked.name}: interrupted; the fault was healed", file=sys.stderr)
        return EXIT_INTERRUPTED
    except (ClusterError, ScenarioError, OSError) as error:
        print(f"{asked.name}: no verdict: {error}", file=sys.stderr)
        return EXIT_NO_VERDICT
    return told(asked, outcome)


def told(asked: Asked, outcome: Outcome) -> int:
    """Prints what became of the run, the verdict last; the exit code."""
    if outcome.verdict is None:
        print(f"{asked.name}: {outcome.file.ended}", file=sys.stderr)
        return outcome.exit_code
    title = f"{asked.fault.name} of {asked.target.text} for {asked.options.duration}"
    print_failovers(outcome.directory)
    print_summary(Summary.of(outcome.directory), outcome.verdict, title)
    print(f"the whole run on one page: {outcome.directory / FILE_NAME}")
    print_conclusion(outcome.verdict)
    return outcome.exit_code


def scenario(asked: Asked, on: On, cluster: Cluster) -> str:
    """The scenario that was asked for, as a file; JSON is YAML."""
    options = asked.options
    before_s, for_s = quantities.duration(options.before), quantities.duration(options.duration)
    brokers = len(cluster.names(BROKER))
    copies = min(3, brokers)
    unavailable = {"unavailable": {"at_most": UNAVAILABLE_MAX}} if asked.name == KILL_LEADER else {}
    return json.dumps(
        {
            "name": asked.name,
            "title": f"{asked.fault.name} of {asked.target.text}",
            "about": f"{asked.fault.name}: {asked.fault.about}. By hand, for {options.duration}.",
            "runs_in": [on],
            "cluster": {"brokers": brokers, "proxy": asked.fault.needs_proxy},
            "topic": {"partitions": 3, "replication_factor": copies, "min_isr": min(2, copies)},
            "workload": {
                "rate": options.load,
                "producers": [{"acks": "all"}],
                "consumers": {"assigned": 1, "group": 0},
            },
            "duration": f"{before_s + for_s + AFTER_S:g}s",
            "faults": [
                {
                    "at": options.before,
                    "fault": asked.fault.name,
                    "target": asked.target.text,
                    "for": options.duration,
                    **asked.given,
                }
            ],
            "promise": {"lost": "none", **unavailable},
            **({} if options.topic is None else {"aim": options.topic}),
        },
        indent=1,
    )


def note(what: str) -> None:
    print(what, file=sys.stderr)


def arguments(words: Sequence[str]) -> Asked:
    """Ends with 2 and one line for what cannot be meant."""
    about = "".join(f"  {name:16} {fault.about}\n" for name, fault in FAULTS.items())
    parser = argparse.ArgumentParser(
        prog="inject.sh",
        description=f"{__doc__}\nFaults:\n{about}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="%(prog)s FAULT [TARGET] [options]; FAULT --help shows those of a fault",
    )
    if not words or words[0].startswith("-"):
        parser.parse_args([*words] or ["--help"])
        parser.error("name a fault first")
    name = words[0]
    try:
        kind = fault_named("kill" if name == KILL_LEADER else name)
    except ValueError as error:
        parser.error(str(error))
    own = argparse.ArgumentParser(
        prog=f"{name.replace('-', '_')}.sh", description=kind.about, epilog=f"See `{parser.prog} --help`."
    )
    own.add_argument("target", nargs="?", default=TARGETS.get(name, "leader of 0"), help="default: %(default)s")
    own.add_argument("--topic", help="whose partitions targets mean; default: that of the load")
    own.add_argument(
        "--for", dest="duration", default="5s" if name == KILL_LEADER else "10s", help="default: %(default)s"
    )
    own.add_argument("--before", default="3s", help="of load before the fault; default: %(default)s")
    own.add_argument("--load", type=float, default=300.0, help="records a second; default: %(default)g")
    add_options(own)
    for each in parameters_of(kind).values():
        own.add_argument(f"--{each.name}", dest=f"of_fault_{each.name}", metavar="VALUE", help=each.about)
    options = own.parse_args(words[1:])
    texts = {each: getattr(options, f"of_fault_{each}") for each in parameters_of(kind)}
    given = {each: text for each, text in texts.items() if text is not None}
    try:
        quantities.duration(options.duration)
        quantities.duration(options.before)
        target = parse(options.target)
        check_hits(kind, target)
        asked = Asked(name, make(kind, given), target, given, options)
        if options.on is not None:
            asked.on(On(options.on))
    except ValueError as error:
        own.error(str(error))
    if not 0.1 <= options.load <= 20_000:
        own.error(f"--load {options.load:g} is not from 0.1 to 20,000")
    return asked


if __name__ == "__main__":
    sys.exit(main())
