"""A bed for faults over a fake cluster: partition 0 of topic `t` is led by broker 1, followed by 2 and 3."""

from random import Random
from types import SimpleNamespace
from typing import Any, cast

from helpers.fake_cluster import FakeCluster
from tidelog.chaos.faults.base import Bed, InForce, On
from tidelog.client.admin import Admin
from tidelog.ids import NO_LEADER, Address
from tidelog.runtime.clock import SystemClock
from tidelog.runtime.tasks import Supervisor


class FakeAdmin:
    def __init__(self) -> None:
        self.leaders = [1, 2, NO_LEADER]
        self.controller = 1
        self.groups = self

    async def describe_topic(self, name: str) -> Any:
        partitions = [
            SimpleNamespace(partition=p, leader=leader, replicas=(1, 2, 3), isr=(1, 2, 3))
            for p, leader in enumerate(self.leaders)
        ]
        return SimpleNamespace(name=name, partitions=partitions)

    async def describe_cluster(self) -> Any:
        return SimpleNamespace(controller_id=self.controller)

    async def wait_until_led(self, name: str, *, in_sync: bool, timeout_s: float) -> None:
        pass

    async def coordinator(self, group: str) -> Address:
        return Address("localhost", 9002)


def fake_bed(cluster: FakeCluster | None = None, admin: FakeAdmin | None = None, on: On = On.LOCAL) -> Bed:
    return Bed(
        cluster=cluster or FakeCluster(),
        on=on,
        admin=cast(Admin, admin or FakeAdmin()),
        topic="t",
        clock=SystemClock(),
        rand=Random(1),
        tasks=Supervisor("faults"),
        in_force=InForce(),
    )
