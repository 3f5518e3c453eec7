"""The ports of a real server process: gRPC, ZooKeeper, the operating system's clock, disk and randomness."""

import random
from collections.abc import Callable

from tidelog.config import ServerSettings
from tidelog.ids import Address
from tidelog.ports.bundle import Ports
from tidelog.runtime.clock import SystemClock
from tidelog.runtime.metrics import ProcessMetrics, ZkMetrics
from tidelog.runtime.os_disk import OsDisk
from tidelog.runtime.rpc_net import GrpcNet
from tidelog.runtime.rpc_options import Limits
from tidelog.runtime.tasks import Supervisor
from tidelog.runtime.worker_process import worker_process
from tidelog.runtime.zk import ZkMeta
from tidelog.watch.logged import LoggedRing


def real_ports(
    name: str,
    settings: ServerSettings,
    supervisor: Supervisor,
    process: ProcessMetrics,
    zk: ZkMetrics,
    answer_bytes: int,
    on_sync: Callable[[float], None] = lambda seconds: None,
    *,
    connections: int,
    stalled_s: Callable[[], float],
    coordinates: bool = False,
    works: bool = False,
) -> Ports:
    """`name` is that of the process, such as broker-1. `answer_bytes` is the largest answer of records that this process sends or
    receives; `on_sync` as of OsDisk; each listener accepts so many `connections`;
    `stalled_s` as of LoopWatch."""

    def session() -> ZkMeta:
        servers = [settings.link_map.get(address, address) for address in settings.zookeeper]
        return ZkMeta(
            ",".join(str(Address(*address)) for address in servers),
            session_timeout_s=settings.zookeeper_session_timeout_ms / 1000,
            spawn=supervisor.start,
            request_timeout_s=settings.request_timeout_ms / 1000,
            observe=zk.request,
            stalled_s=stalled_s,
        )

    meta = session()
    meta.on_session(zk.session)
    clock = SystemClock()
    limits = Limits(
        settings.request_max_bytes,
        answer_bytes,
        settings.responses_max_bytes,
        settings.connection_responses_max_bytes,
        connections,
    )
    net = GrpcNet(limits, settings.link_map, on_bug=process.task_failed)
    process.watch_responses(lambda: 0 if net.responses is None else net.responses.bytes)
    return Ports(
        clock=clock,
        net=net,
        disk=OsDisk(on_sync),
        meta=meta,
        rand=random.SystemRandom(),
        coordinator_meta=session() if coordinates else None,
        worker=worker_process() if works else None,
        recorder=LoggedRing(name, clock.wall_ms(), clock),
    )
