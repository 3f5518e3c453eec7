"""Programs that end without closing their clients, and blocks that end by an exception."""

import asyncio

import pytest

from helpers.fake_broker import FakeCluster
from helpers.programs import run_program
from tidelog.client.errors import DeliveryError
from unit.client.clients import producer

PROGRAM = """
import atexit
from helpers.fake_broker import FakeCluster, serve_over_grpc
from tidelog.client import sync
sync._EXIT_S = {limit_s}
thread, cluster = sync._LoopThread(), FakeCluster()
cluster.create("t")
servers = thread.call(serve_over_grpc(cluster))
atexit.register(lambda: print("stored", len(cluster.partition("t").values())))
producer = sync.SyncProducer(cluster.bootstrap, linger_ms=1000)
producer.send("t", b"v").result()
cluster.partition("t").leader = {leader}
consumer = sync.SyncConsumer(cluster.bootstrap)
for _ in range(100):
    producer.send("t", b"v")
"""


@pytest.mark.parametrize(
    ("leader", "limit_s", "stored", "said"),
    [(1, 30, 101, ""), (-1, 0.5, 1, "100 records were not acknowledged when the program ended without close()\n")],
)
def test_a_program_that_ends_flushes_or_says_what_is_lost(leader: int, limit_s: float, stored: int, said: str) -> None:
    script = PROGRAM.format(leader=leader, limit_s=limit_s)
    done = run_program(script)
    assert done.stdout == f"stored {stored}\n"
    assert done.stderr == said
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("error", "sent"), [(ZeroDivisionError(), True), (SystemExit(0), True), (asyncio.CancelledError(), False)]
)
async def test_a_block_that_raises_flushes_unless_cancelled(error: BaseException, sent: bool) -> None:
    cluster = FakeCluster()
    cluster.create("t")
    with pytest.raises(type(error)):
        async with producer(cluster, linger_ms=1000) as p:
            ack = await p.send("t", b"v")
            raise error
    assert cluster.partition("t").values() == ([b"v"] if sent else [])
    assert isinstance(ack.exception(), DeliveryError) is not sent
