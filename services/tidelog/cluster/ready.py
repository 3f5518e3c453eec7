"""When a cluster that was started can be used: every process listens, and the brokers say that all of them are alive."""

import asyncio
import socket
from typing import Final

from tidelog.client.admin import AdminClient
from tidelog.cluster.api import BROKER, Cluster, ClusterError, State, bootstrap_servers, broker_id_of
from tidelog.cluster.wait import until
from tidelog.errors import TidelogError
from tidelog.ids import Address
from tidelog.runtime.clock import SystemClock

CONNECT_TIMEOUT_S: Final = 1.0
ASK_AGAIN_S: Final = 0.1


def wait_ready(cluster: Cluster, timeout_s: float) -> None:
    """ClusterError with the last words of a process that ended, or naming the one that does not serve."""
    for row in cluster.status():
        name = row.name
        addresses = list(row.addresses.values())

        def serves(name: str = name, addresses: list[Address] = addresses) -> bool:
            check_runs(cluster, name)
            return all(listens(address) for address in addresses)

        until(serves, f"{name} to listen on {', '.join(map(str, addresses))}", timeout_s=timeout_s)
    asyncio.run(_wait_members(cluster, timeout_s))


async def _wait_members(cluster: Cluster, timeout_s: float) -> None:
    """Until a controller is active and it counts every broker of the cluster as alive."""
    clock = SystemClock()
    deadline = clock.now() + timeout_s
    expected = {broker_id_of(name) for name in cluster.names(BROKER)}
    found = "no broker answers"
    try:
        async with AdminClient(bootstrap_servers(cluster), request_timeout_ms=int(timeout_s * 1000)) as admin:
            while clock.now() < deadline:
                answer = await admin.describe_cluster()
                alive = {member.broker.broker_id for member in answer.brokers if member.state == "alive"}
                if alive == expected and answer.controller_id >= 0:
                    return
                found = f"controller {answer.controller_id}, brokers alive: {sorted(alive)} of {sorted(expected)}"
                await clock.sleep(ASK_AGAIN_S)
    except TidelogError as error:
        found = error.message
    raise ClusterError(f"the cluster is not complete after {timeout_s:g} s: {found}")


def listens(address: Address) -> bool:
    try:
        with socket.create_connection(address, timeout=CONNECT_TIMEOUT_S):
            return True
    except OSError:
        return False


def check_runs(cluster: Cluster, name: str) -> None:
    """ClusterError with its last words when a process that was started has ended."""
    if next(row.state for row in cluster.status() if row.name == name) is State.STOPPED:
        raise ClusterError(f"{name} ended while the cluster was starting; its last words:\n{cluster.logs(name, 20)}")
