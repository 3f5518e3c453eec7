"""Programs that end without closing their clients, and blocks that end by an exception."""

import asyncio

import pytest

from helpers.brokers import brokers
from helpers.programs import run_program
from tidelog.client.errors import DeliveryError
from unit.client.clients import producer

PROGRAM = """
import atexit
from helpers.driven_brokers import Driven, serve_over_grpc
from tidelog.client import sync
sync._EXIT_S = {limit_s}
thread = sync._LoopThread()
cluster = Driven(thread.call(serve_over_grpc()), thread.call)
cluster.create("t", replicas=1)
leader = cluster.host("t")
atexit.register(lambda: print("stored", leader.log.log_end_offset))
producer = sync.SyncProducer(cluster.bootstrap, linger_ms=1000)
producer.send("t", b"v").result()
{then}
consumer = sync.SyncConsumer(cluster.bootstrap)
for _ in range(100):
    producer.send("t", b"v")
"""


@pytest.mark.parametrize(
    ("then", "limit_s", "stored", "said"),
    [
        ("", 30, 101, ""),
        (
            "cluster.kill(1); cluster.notice(1)",
            0.5,
            1,
            "100 records were not acknowledged when the program ended without close()\n",
        ),
    ],
)
def test_a_program_that_ends_flushes_or_says_what_is_lost(then: str, limit_s: float, stored: int, said: str) -> None:
    script = PROGRAM.format(then=then, limit_s=limit_s)
    done = run_program(script)
    assert done.stdout == f"stored {stored}\n"
    assert done.stderr == said
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("error", "sent"), [(ZeroDivisionError(), True), (SystemExit(0), True), (asyncio.CancelledError(), False)]
)
async def test_a_block_that_raises_flushes_unless_cancelled(error: BaseException, sent: bool) -> None:
    cluster = await brokers()
    await cluster.create("t")
    with pytest.raises(type(error)):
        async with producer(cluster, linger_ms=1000) as p:
            ack = await p.send("t", b"v")
            raise error
    assert cluster.values("t") == ([b"v"] if sent else [])
    assert isinstance(ack.exception(), DeliveryError) is not sent
