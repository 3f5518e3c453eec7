"""Every method of a cluster, asked for nothing: no handler may keep the event loop of its process."""

from collections.abc import Iterator
from typing import Any, get_args, get_origin, get_type_hints

from helpers.hostile import METHODS, StepCounter
from tidelog.errors import TransportError
from tidelog.ids import Address
from tidelog.ports.net import Unary
from tidelog.testing.sim_cluster import SimCluster
from tidelog.values import Message
from tidelog.wire import messages as m
from tidelog.wire import services

PATIENCE_S = 1.0
"""In virtual time."""
NUMBERS = (0, 1, 20_000)


def hollow(kind: type[Any], number: int) -> Iterator[Any]:
    """Messages without an item in any list; each number is `number`. Of what may be absent, each has one, and the first none."""
    fields: dict[str, Any] = {}
    absent: dict[str, type[Any]] = {}
    scalars = {int: number, bool: bool(number), str: "g" if number else "", bytes: b""}
    for name, hint in get_type_hints(kind).items():
        if get_origin(hint) is tuple:
            fields[name] = ()
        elif hint in scalars:
            fields[name] = scalars[hint]
        elif isinstance(hint, type) and issubclass(hint, Message):
            fields[name] = next(hollow(hint, number))
        elif type(None) in get_args(hint):
            fields[name] = None
            (absent[name],) = set(get_args(hint)) - {type(None)}
    yield kind(**fields)
    for name, inner in absent.items():
        yield kind(**{**fields, name: next(hollow(inner, number))})


async def test_a_request_for_nothing_keeps_no_loop() -> None:
    cluster = SimCluster(seed=1)
    cluster.start()
    ports = cluster.client_ports("client")
    await ports.clock.sleep(5.0)
    served = set()
    for address, server in list(cluster.network.listening.items()):
        for method in METHODS:
            if server.route(method) is None:
                continue
            served.add(method.path)
            for number in NUMBERS:
                for request in hollow(method.request, number):
                    await asked(cluster, address, method, request)
    assert served == {method.path for method in METHODS}
    # Settings that were made by hand come from no source that could be told.
    assert {each.rpartition("/")[2] for each in cluster.world.bugs} <= {"DescribeBrokerConfigs"}
    for node in cluster.nodes.values():
        node.kill()


async def asked(cluster: SimCluster, address: Address, method: Any, request: Any) -> None:
    ports = cluster.client_ports("client")
    channel = ports.net.channel(address, purpose="test")
    with StepCounter() as counter:
        try:
            if isinstance(method, Unary):
                await channel.call(method, request, PATIENCE_S)
            else:
                stream = channel.open(method)
                await stream.write(request)
                await ports.clock.sleep(PATIENCE_S)
                stream.cancel()
        except TransportError:
            pass  # a refusal
    assert counter.held is None, f"{counter.held}: {request}"


async def test_a_fetch_of_no_partition_is_answered_at_once() -> None:
    cluster = SimCluster(seed=1)
    cluster.start()
    ports = cluster.client_ports("client")
    await ports.clock.sleep(5.0)
    request = m.FetchRequest(max_wait_ms=20_000, min_bytes=1, max_bytes=1)
    channel = ports.net.channel(cluster.bootstrap[0], purpose="test")
    with StepCounter():
        assert await channel.call(services.REPLICA_SERVICE_FETCH, request, PATIENCE_S) == m.FetchResponse()
    for node in cluster.nodes.values():
        node.kill()
