"""Clients in a process that was forked from one that has used gRPC; the forks are in a Python of their own."""

import pytest

from helpers.programs import run_program

MADE_BEFORE = """
from helpers.driven_brokers import serve_over_grpc
from tidelog.client.sync import SyncAdmin, SyncProducer, _LoopThread
thread = _LoopThread()
cluster = thread.call(serve_over_grpc())
thread.call(cluster.create("t"))
first = SyncProducer(cluster.bootstrap)
first.send("t", b"v").result(10)
"""
FORKED = """
import os, sys
from tidelog.client.producer import Producer
sys.stdout.flush()
child = os.fork()
if not child:
    try:
        {call}
    except RuntimeError as error:
        os.write(1, f"child: {{error}}\\n".encode())
        os._exit(7)
    os._exit(0)
print("child ended with", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
with SyncProducer(cluster.bootstrap) as again:
    print("offset", again.send("t", b"v").result(10).offset)
"""


@pytest.mark.parametrize(
    ("call", "closed"),
    [("SyncAdmin(cluster.bootstrap)", False), ("Producer(cluster.bootstrap)", True), ("first.flush()", False)],
)
def test_a_forked_child_is_refused_and_its_parent_goes_on(call: str, closed: bool) -> None:
    script = MADE_BEFORE + ("first.close()" if closed else "") + FORKED.format(call=call)
    done = run_program(script)
    assert "child ended with 7\noffset 1" in done.stdout, done.stdout + done.stderr
    assert "spawn" in done.stdout and "forkserver" in done.stdout
    assert "Traceback" not in done.stderr
    assert done.returncode == 0
