"""Packet rules in the network namespace of a container, which survive nothing: they are gone when the container stops.

The rules of this project live in two chains of their own, one for packets that come and one for those that go, and are
always set as a whole. It takes nsenter and iptables, and root on the engine's machine.
"""

import re
import subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tidelog.cluster.api import ClusterError

CHAINS: Final = {"INPUT": "tidelog-in", "OUTPUT": "tidelog-out"}
_COUNTED: Final = re.compile(r"\[(\d+):\d+\] -A (tidelog-\w+) (.*)")
_SOURCE: Final = re.compile(r"-s ([\d.]+)(?:/32)? ")


@dataclass(frozen=True, slots=True)
class Rules:
    """What becomes of a container's packets."""

    silenced: frozenset[str] = field(default=frozenset())
    """Addresses whose packets are dropped as they arrive."""
    refused: frozenset[str] = field(default=frozenset())
    """Addresses whose connections are answered with a reset."""
    loss: float = 0.0
    """Share of all packets, either way, that is dropped."""

    def lines(self) -> list[str]:
        """As iptables-restore takes them."""
        incoming = CHAINS["INPUT"]
        drops = [f"-A {incoming} -s {address} -j DROP" for address in sorted(self.silenced)]
        resets = [
            f"-A {incoming} -s {address} -p tcp -j REJECT --reject-with tcp-reset" for address in sorted(self.refused)
        ]
        losses = [
            f"-A {chain} -m statistic --mode random --probability {self.loss:.4f} -j DROP"
            for chain in CHAINS.values()
            if self.loss
        ]
        return ["*filter", *(f":{chain} - [0:0]" for chain in CHAINS.values()), *drops, *resets, *losses, "COMMIT", ""]


@dataclass(frozen=True, slots=True)
class Counters:
    """Packets that each kind of rule has taken."""

    silenced: Mapping[str, int]
    """By address."""
    refused: int
    lost: int


def parse_counters(saved: str) -> Counters:
    """Of what `iptables-save -c` prints."""
    silenced: dict[str, int] = {}
    refused = lost = 0
    for line in saved.splitlines():
        found = _COUNTED.match(line)
        if found is None:
            continue
        packets, rule = int(found[1]), found[3]
        source = _SOURCE.match(rule)
        if "statistic" in rule:
            lost += packets
        elif "REJECT" in rule:
            refused += packets
        elif source is not None:
            silenced[source[1]] = packets
    return Counters(silenced, refused, lost)


def set_rules(pid: int, rules: Rules) -> None:
    """For the namespace that process `pid` lives in; all that were set before are gone, and so are their counters."""
    _inside(pid, ["iptables-restore", "--wait", "--noflush"], "\n".join(rules.lines()))
    for base, chain in CHAINS.items():
        if _run(pid, ["iptables", "--wait", "--check", base, "--jump", chain]).returncode:
            _inside(pid, ["iptables", "--wait", "--insert", base, "--jump", chain])


def counters(pid: int) -> Counters:
    return parse_counters(_inside(pid, ["iptables-save", "--counters", "--table", "filter"]))


def send_datagram(pid: int, addresses: Collection[str]) -> None:
    """One packet to each, from inside: something for a rule to take."""
    for address in addresses:
        _inside(pid, ["bash", "-c", f"echo > /dev/udp/{address}/9"])


def _inside(pid: int, command: Sequence[str], text: str = "") -> str:
    done = _run(pid, command, text)
    if done.returncode:
        raise ClusterError(
            f"packets of a container are cut with nsenter and iptables, as root on the engine's machine; "
            f"`{' '.join(command)}` in the network of process {pid} ended with {done.returncode}: {done.stderr.strip()}"
        )
    return done.stdout


def _run(pid: int, command: Sequence[str], text: str = "") -> subprocess.CompletedProcess[str]:
    argv = ["nsenter", "--target", str(pid), "--net", *command]
    try:
        return subprocess.run(argv, input=text, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise ClusterError(
            f"{error.filename} is not installed here; cutting packets takes nsenter and iptables"
        ) from None
