"""Answers by the listener at which a client asks: what a broker needs to know of another is told at INTERNAL alone."""

import typing
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pytest

from helpers.requirements import requirement
from tidelog import values
from tidelog.broker import config_view
from tidelog.broker.metadata_cache import MetadataCache
from tidelog.broker.service import BrokerService
from tidelog.cli.commands.brokers import as_json
from tidelog.config import BrokerSettings
from tidelog.ids import Address
from tidelog.ports.net import KnownCaller, Route, Unary
from tidelog.ports.recorder import SILENT
from tidelog.testing.clock import SimClock
from tidelog.watch.service import WatchService
from tidelog.wire import messages as m
from tidelog.wire import services as s

CLIENT = KnownCaller("client")
DOORS = (m.Listener(name="INTERNAL", host="inside", port=1), m.Listener(name="EXTERNAL", host="outside", port=2))
LIVE = m.LiveBroker(
    fetch_max_bytes=1 << 20, broker_id=1, broker_epoch=77, rack="r", listeners=DOORS, shutting_down=True
)
CLUSTER = m.DescribeClusterResponse(
    controller_id=1, controller_epoch=2, topics=3, partitions=4, leaderless_partitions=5, under_replicated_partitions=6,
    under_min_isr_partitions=7, feature_level=2,
    brokers=(m.ClusterBroker(broker=LIVE, state="alive", leaders=1, replicas=2, feature_level=2),),
)  # fmt: skip


class Controller:
    async def call(self, method: Unary[Any, Any], request: Any, timeout_s: float) -> Any:
        return CLUSTER


def routes(listener: str, groups: Any = None) -> list[Route]:
    others = [Mock() for _ in range(6)]
    metadata = MetadataCache()
    metadata.cluster_name = "c"
    link: Any = Controller()
    watch = WatchService(SILENT, SimClock())
    service = BrokerService(*others, metadata, link, Mock(), SimClock(), groups or Mock(), watch)
    return service.routes(listener)


async def described_at(listener: str) -> m.DescribeClusterResponse:
    (route,) = [each for each in routes(listener) if each.method is s.ADMIN_SERVICE_DESCRIBE_CLUSTER]
    call: Any = route.handler
    answer: m.DescribeClusterResponse = await call(m.DescribeClusterRequest(), CLIENT)
    return answer


@requirement("ClusterMetadataResponse names coordinator and live brokers")
@pytest.mark.parametrize(("group", "coordinator"), [("known", 3), ("unknown", -1)])
async def test_cluster_metadata_names_the_coordinator_of_a_group(group: str, coordinator: int) -> None:
    groups = Mock(coordinator_of=lambda group_id: 3 if group_id == "known" else -1)
    (route,) = [each for each in routes("EXTERNAL", groups) if each.method is s.COORDINATOR_SERVICE_CLUSTER_METADATA]
    call: Any = route.handler
    answer: m.ClusterMetadataResponse = await call(m.ClusterMetadataRequest(group_id=group), CLIENT)
    assert answer.coordinator_id == coordinator


async def test_a_client_hears_of_its_own_listener_only() -> None:
    (told,) = (await described_at("EXTERNAL")).brokers
    assert (told.broker.broker_epoch, told.broker.listeners) == (-1, (DOORS[1],))
    assert (told.broker.broker_id, told.broker.rack, told.broker.shutting_down, told.leaders) == (1, "r", True, 1)
    answer = await described_at("EXTERNAL")
    (row,) = as_json(answer)
    assert row["listeners"] == {"EXTERNAL": "outside:2"} and "epoch" not in row


async def test_a_server_hears_of_everything() -> None:
    answer = await described_at("INTERNAL")
    assert answer.brokers == CLUSTER.brokers and answer.cluster_name == "c"
    (row,) = as_json(answer)
    assert (row["listeners"], row["epoch"]) == ({"INTERNAL": "inside:1", "EXTERNAL": "outside:2"}, 77)


def fields(kind: type[Any]) -> Iterator[tuple[str, Any]]:
    """Name and type of every field, those of the messages inside too."""
    for name, hint in typing.get_type_hints(kind).items():
        (held,) = set(typing.get_args(hint) or (hint,)) - {..., type(None)}
        yield name, held
        if isinstance(held, type) and issubclass(held, values.Message):
            yield from fields(held)


def test_no_other_answer_to_clients_tells_epochs_or_listeners() -> None:
    telling = {
        each.method.path
        for each in routes("EXTERNAL")
        if any(name == "broker_epoch" or held is m.Listener for name, held in fields(each.method.response))
    }
    assert telling == {s.ADMIN_SERVICE_DESCRIBE_CLUSTER.path}


def test_protocol_events_tell_no_address() -> None:
    assert {name for name, _ in fields(m.WatchResponse)} & {"host", "port", "broker_epoch", "incarnation"} == set()


@pytest.mark.parametrize(
    ("listener", "listens", "advertised"),
    [
        ("INTERNAL", "INTERNAL://inside:1,EXTERNAL://outside:2", "INTERNAL://near:3,EXTERNAL://far:4"),
        ("EXTERNAL", "EXTERNAL://outside:2", "EXTERNAL://far:4"),
    ],
)
def test_settings_name_the_listener_of_the_caller(listener: str, listens: str, advertised: str) -> None:
    settings = BrokerSettings(
        broker_id=1,
        zookeeper=(Address("zookeeper", 2181),),
        data_dir=typing.cast(Any, "/data"),
        listeners={"INTERNAL": Address("inside", 1), "EXTERNAL": Address("outside", 2)},
        advertised_listeners={"INTERNAL": Address("near", 3), "EXTERNAL": Address("far", 4)},
    )
    given = dict.fromkeys(("broker_id", "zookeeper", "data_dir", "listeners", "advertised_listeners"), "a file")
    object.__setattr__(settings, "_sources", given)
    found = {each.key: each for each in config_view.describe_broker(settings, listener)}
    assert (found["listeners"].value, found["advertised_listeners"].value) == (listens, advertised)
    assert found["listeners"].synonyms[0].value == listens
