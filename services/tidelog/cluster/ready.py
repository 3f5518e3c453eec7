"""When a cluster that was started can be used: every process listens, and the brokers say that all of them are alive."""

import asyncio
import json
import socket
from collections.abc import Collection
from typing import Final

from tidelog.client.admin import Admin
from tidelog.cluster.api import BROKER, Cluster, ClusterError, State, bootstrap_servers, broker_id_of
from tidelog.cluster.wait import until
from tidelog.errors import TidelogError
from tidelog.ids import Address
from tidelog.runtime.clock import SystemClock

CONNECT_TIMEOUT_S: Final = 1.0
ASK_AGAIN_S: Final = 0.1
ANSWERS_WITHIN_MS: Final = 1_000
"""After so long it is looked at again whether every process runs."""


def wait_ready(cluster: Cluster, timeout_s: float) -> None:
    """ClusterError with the last line of a process that ended, at once; else naming the one that does not serve."""
    rows = cluster.status()
    started = [row.name for row in rows]
    for row in rows:
        addresses = list(row.addresses.values())

        def serves(addresses: list[Address] = addresses) -> bool:
            check_run(cluster, started)  # each time all of them: another program may listen at the ports of a dead one
            return all(listens(address) for address in addresses)

        until(serves, f"{row.name} to listen on {', '.join(map(str, addresses))}", timeout_s=timeout_s)
    asyncio.run(_wait_members(cluster, started, timeout_s))


async def _wait_members(cluster: Cluster, started: Collection[str], timeout_s: float) -> None:
    """Until a controller is active and it counts every broker of the cluster as alive."""
    clock = SystemClock()
    deadline = clock.now() + timeout_s
    expected = {broker_id_of(name) for name in cluster.names(BROKER)}
    found = "no broker answers"
    while clock.now() < deadline:
        check_run(cluster, started)
        try:
            async with Admin(bootstrap_servers(cluster), request_timeout_ms=ANSWERS_WITHIN_MS) as admin:
                answer = await admin.describe_cluster()
        except TidelogError as error:
            found = error.message
            continue
        alive = {member.broker.broker_id for member in answer.brokers if member.state == "alive"}
        if alive == expected and answer.controller_id >= 0:
            return
        found = f"controller {answer.controller_id}, brokers alive: {sorted(alive)} of {sorted(expected)}"
        await clock.sleep(ASK_AGAIN_S)
    raise ClusterError(f"the cluster is not complete after {timeout_s:g} s: {found}")


def listens(address: Address) -> bool:
    try:
        with socket.create_connection(address, timeout=CONNECT_TIMEOUT_S):
            return True
    except OSError:
        return False


def check_run(cluster: Cluster, names: Collection[str]) -> None:
    """ClusterError with its last line when one of these processes, which were started, has ended."""
    for row in cluster.status():
        if row.name in names and row.state is State.STOPPED:
            raise ClusterError(
                f"{row.name} ended while the cluster was starting: {last_line(cluster.logs(row.name, 20))}"
            )


def last_line(log: str) -> str:
    """The reason that a process gave for its end: its last line, of which JSON is reduced to the event."""
    line = next((each for each in reversed(log.splitlines()) if each.strip()), "it wrote nothing")
    try:
        told = json.loads(line)
    except ValueError:
        return line.strip()
    return str(told.get("exception", told.get("event", line))).strip().splitlines()[-1]
