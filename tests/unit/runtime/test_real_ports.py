"""The ports of a server process before it starts: nothing is connected yet."""

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from helpers.requirements import requirement
from tidelog.config import BrokerSettings
from tidelog.ids import Address
from tidelog.runtime.metrics import BrokerMetrics
from tidelog.runtime.real_ports import real_ports
from tidelog.runtime.tasks import Supervisor


@requirement("The coordinator has a ZooKeeper session of its own")
@pytest.mark.parametrize("coordinates", [True, False])
async def test_a_process_that_coordinates_has_another_session_for_it(tmp_path: Path, coordinates: bool) -> None:
    settings = BrokerSettings(
        broker_id=1,
        listeners={"INTERNAL": Address("127.0.0.1", 0)},
        zookeeper=(Address("127.0.0.1", 1),),
        data_dir=tmp_path,
    )
    metrics = BrokerMetrics(CollectorRegistry())
    ports = real_ports(
        *("broker-1", settings, Supervisor("test"), metrics.process, metrics.zk, settings.fetch_max_bytes),
        connections=1,
        stalled_s=lambda: 0.0,
        coordinates=coordinates,
    )
    assert (ports.coordinator_meta is not None) is coordinates
    assert ports.coordinator_meta is not ports.meta
