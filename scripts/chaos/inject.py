#!/usr/bin/env python3
"""Injects one fault by hand, shows what becomes of a topic meanwhile, and heals it, whatever happens.

`--on local` takes the running cluster of `tidelog local up`, or starts one of its own when there is none or when links are to be
cut; `--on compose` takes the containers of `docker compose up`. Without --topic a new one is made and written to.

TARGET is a process (broker-1) or a role: leader of 0, follower of 0, controller, standby controller, zookeeper leader,
coordinator of GROUP, all brokers, minority brokers, clients, everything; several with `and`.

Ends with 0 when the cluster was whole again afterwards, 1 when it was not in time, 2 for bad usage, 3 when the fault did not take
effect or the cluster is not there, 130 after Ctrl-C.
"""

import argparse
import asyncio
import signal
import sys
from collections.abc import Callable, Sequence
from random import Random

from clusters import EXIT_INTERRUPTED, EXIT_NO_VERDICT, add_options, open_cluster
from rich.console import Console

from tidelog.chaos import quantities
from tidelog.chaos.faults.base import Bed, Fault, FaultMissed, InForce, On, ends_as_interrupt
from tidelog.chaos.faults.registry import FAULTS, fault_named, make, parameters_of
from tidelog.chaos.targets import Target, check_hits, parse, resolve
from tidelog.client.admin import AdminClient
from tidelog.client.connections import ClientPorts
from tidelog.client.producer import Producer
from tidelog.cluster.api import BROKER, ZOOKEEPER, Cluster, ClusterError, bootstrap_servers
from tidelog.errors import TidelogError, TransportError
from tidelog.runtime.clock import SystemClock
from tidelog.runtime.rpc_net import GrpcNet
from tidelog.runtime.tasks import Supervisor

EXIT_NOT_WHOLE = 1
TARGETS = {
    "rolling-restart": "all brokers",
    "lose-quorum": "majority zookeepers",
    "wipe": "follower of 0",
    "torn-tail": "follower of 0",
    "bit-flip": "follower of 0",
}
"""Where the leader of partition 0 is not what one would take."""
WHOLE_WITHIN_S = 90.0
RECORDS_PER_S = 100
VALUE = b"x" * 1_000
LOOK_EVERY_S = 0.5


def main() -> int:
    options, fault, target = arguments(sys.argv[1:])
    console, clock = Console(), SystemClock()
    started = clock.now()

    def say(what: str) -> None:
        console.print(
            f"[dim]{clock.now() - started:6.1f} s[/dim]  {what}", highlight=False, markup=True, soft_wrap=True
        )

    ensemble = ZOOKEEPER in target.kinds
    try:
        with (
            ends_as_interrupt(),
            open_cluster(
                options, say, links_through_proxy=fault.needs_proxy, zookeepers=3 if ensemble else 1
            ) as cluster,
            InForce() as in_force,
        ):
            injection = Injection(options, fault, target, cluster, in_force, say)
            whole = asyncio.run(injection.play())
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # hit once more, it finds nothing left to interrupt
        print(f"{fault.name}: interrupted; the fault was healed", file=sys.stderr)
        return EXIT_INTERRUPTED
    except (ClusterError, TidelogError, TransportError, FaultMissed, OSError) as error:
        print(f"{fault.name}: no verdict: {error}", file=sys.stderr)
        return EXIT_NO_VERDICT
    return 0 if whole else EXIT_NOT_WHOLE


class Injection:
    def __init__(
        self,
        options: argparse.Namespace,
        fault: Fault,
        target: Target,
        cluster: Cluster,
        in_force: InForce,
        say: Callable[[str], None],
    ) -> None:
        self._options = options
        self._fault = fault
        self._target = target
        self._cluster = cluster
        self._in_force = in_force
        self._say = say
        self._clock = SystemClock()
        self._rand = Random()
        self._acked = 0

    async def play(self) -> bool:
        """Whether every ISR was full again in time."""
        servers = bootstrap_servers(self._cluster)
        tasks = Supervisor("fault")
        ports = ClientPorts(self._clock, GrpcNet(link_map=self._cluster.client_links()), self._rand)
        async with AdminClient(servers) as admin, Producer(servers, ports=ports, request_timeout_ms=5_000) as producer:
            topic = self._options.topic or await self._new_topic(admin)
            bed = Bed(
                self._cluster,
                On(self._options.on),
                admin,
                topic,
                self._clock,
                self._rand,
                tasks,
                self._in_force,
                self._say,
            )
            try:
                tasks.start("watch", self._watch(admin, topic))
                if self._options.topic is None:
                    tasks.start("load", self._load(producer, topic))
                    await self._clock.sleep(self._options.before)
                await self._inject(bed)
                return await self._whole(admin, topic)
            finally:
                await tasks.stop()
                await self._in_force.heal_all()

    async def _inject(self, bed: Bed) -> None:
        names = await resolve(self._target, bed)
        self._say(f"{self._fault.name} of {self._target.text}: {', '.join(names)}")
        injected = await self._fault.inject(bed, names)
        self._say(f"[bold]took effect: {injected.effect}[/]; healed after {self._options.duration:g} s, or Ctrl-C")
        await self._clock.sleep(self._options.duration)
        await injected.heal()
        self._say("[bold]healed[/]")

    async def _whole(self, admin: AdminClient, topic: str) -> bool:
        healed_at = self._clock.now()
        try:
            await admin.wait_until_led(topic, in_sync=True, timeout_s=WHOLE_WITHIN_S)
        except TidelogError as error:
            self._say(f"[bold red]not whole after {WHOLE_WITHIN_S:g} s: {error.message}[/]")
            return False
        took_s = self._clock.now() - healed_at
        self._say(f"[bold green]every ISR is full {took_s:.1f} s after that; {self._acked:,} records acknowledged[/]")
        return True

    async def _new_topic(self, admin: AdminClient) -> str:
        topic = f"chaos-{self._rand.randbytes(3).hex()}"
        brokers = len(self._cluster.names(BROKER))
        configs = {"min.insync.replicas": str(min(2, brokers))}
        await admin.create_topic(topic, partitions=3, replication_factor=min(3, brokers), configs=configs)
        await admin.wait_until_led(topic, in_sync=True, timeout_s=WHOLE_WITHIN_S)
        self._say(f"created topic {topic}; {RECORDS_PER_S} records/s with acks=all go to it")
        return topic

    async def _load(self, producer: Producer, topic: str) -> None:
        while True:
            ack = await producer.send(topic, VALUE)
            ack.add_done_callback(lambda ack: self._count(ack.exception() is None))
            await self._clock.sleep(1 / RECORDS_PER_S)

    def _count(self, acked: bool) -> None:
        self._acked += acked

    async def _watch(self, admin: AdminClient, topic: str) -> None:
        """Says what changes."""
        known: dict[int, tuple[int, int, Sequence[int]]] = {}
        while True:
            try:
                found = (await admin.describe_topic(topic)).partitions
            except (TidelogError, TransportError) as error:
                self._say(f"nobody tells how the cluster is: {error}")
                found = ()
            for each in found:
                now = (each.leader, each.leader_epoch, tuple(each.isr))
                if known.get(each.partition, now) != now:
                    leader = "no leader" if each.leader < 0 else f"leader {each.leader} in epoch {each.leader_epoch}"
                    self._say(f"{topic}-{each.partition}: {leader}, ISR {', '.join(map(str, each.isr)) or 'empty'}")
                known[each.partition] = now
            await self._clock.sleep(LOOK_EVERY_S)


def arguments(words: Sequence[str]) -> tuple[argparse.Namespace, Fault, Target]:
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
    try:
        kind = fault_named(words[0])
    except ValueError as error:
        parser.error(str(error))
    own = argparse.ArgumentParser(prog=f"{kind.name}.sh", description=kind.about, epilog=f"See `{parser.prog} --help`.")
    own.add_argument("target", nargs="?", default=TARGETS.get(kind.name, "leader of 0"), help="default: %(default)s")
    own.add_argument("--topic", help="whose partitions targets mean; default: a new one, which is written to")
    own.add_argument("--for", dest="duration", default="10s", help="until it is healed; default: %(default)s")
    own.add_argument("--before", default="3s", help="of load on a new topic before the fault; default: %(default)s")
    add_options(own)
    for each in parameters_of(kind).values():
        own.add_argument(f"--{each.name}", dest=f"of_fault_{each.name}", metavar="VALUE", help=each.about)
    options = own.parse_args(words[1:])
    given = {name: getattr(options, f"of_fault_{name}") for name in parameters_of(kind)}
    try:
        options.duration = quantities.duration(options.duration)
        options.before = quantities.duration(options.before)
        fault = make(kind, {name: text for name, text in given.items() if text is not None})
        target = parse(options.target)
        check_hits(kind, target)
    except ValueError as error:
        own.error(str(error))
    if why := fault.why_not(On(options.on)):
        own.error(f"not with --on {options.on}: {why}")
    return options, fault, target


if __name__ == "__main__":
    sys.exit(main())
