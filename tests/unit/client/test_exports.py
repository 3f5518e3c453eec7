"""`import tidelog`: what a program gets from it, and what it costs."""

import subprocess
import sys

import pytest

import tidelog
from helpers.brokers import Brokers, brokers
from helpers.requirements import requirement
from tidelog.client.connections import parse_bootstrap
from tidelog.ids import Address
from tidelog.release import VERSION

LOCALHOST = [Address("localhost", 19092), Address("localhost", 29092), Address("localhost", 39092)]


def test_every_name_is_there() -> None:
    assert set(tidelog.__all__) <= set(dir(tidelog))
    for name in tidelog.__all__:
        assert getattr(tidelog, name) is not None
    assert tidelog.__version__ == VERSION
    assert not hasattr(tidelog, "Broker")


def test_the_import_loads_no_client() -> None:
    code = "import sys; before = set(sys.modules); import tidelog; print(*set(sys.modules) - before)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {name for name in ran.stdout.split() if name.partition(".")[0] not in sys.stdlib_module_names} == {
        "tidelog",
        "tidelog.release",
    }


def test_no_address_is_the_variable_else_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDELOG_BOOTSTRAP_SERVERS", raising=False)
    assert parse_bootstrap(None) == LOCALHOST
    monkeypatch.setenv("TIDELOG_BOOTSTRAP_SERVERS", "a:1, b:2")
    assert parse_bootstrap(None) == [Address("a", 1), Address("b", 2)]
    monkeypatch.setenv("TIDELOG_BOOTSTRAP_SERVERS", "")
    assert parse_bootstrap(None) == LOCALHOST
    monkeypatch.setenv("TIDELOG_BOOTSTRAP_SERVERS", "a")
    with pytest.raises(ValueError, match=r"^TIDELOG_BOOTSTRAP_SERVERS: 'a' is not host:port"):
        parse_bootstrap(None)


async def test_a_client_without_an_address_asks_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = await brokers()
    await cluster.create("events")
    monkeypatch.setenv("TIDELOG_BOOTSTRAP_SERVERS", cluster.bootstrap)
    async with tidelog.Admin(ports=cluster.ports) as admin:
        assert await admin.list_topics() == ["events"]
    async with tidelog.Producer(ports=cluster.ports) as producer:
        await (await producer.send("events", b"v"))
    async with tidelog.Consumer(ports=cluster.ports) as consumer:
        await consumer.assign_topics("events")
        assert [record.value for record in await consumer.poll(1, 10.0)] == [b"v"]


@pytest.mark.parametrize("wrong", [{"bootstrap.servers": "a:1"}, 9092, [9092], ("a", 1)], ids=repr)
def test_an_address_of_another_type(wrong: object) -> None:
    with pytest.raises(TypeError, match=r"bootstrap .* is not text like 'host:port,host:port'"):
        tidelog.Producer(wrong, ports=Brokers().ports)


@requirement("A consumer is given a list of bootstrap brokers")
def test_addresses_in_a_list() -> None:
    assert parse_bootstrap(["a:1", Address("b", 2)]) == [Address("a", 1), Address("b", 2)]
    assert parse_bootstrap("a:1,b:2,") == [Address("a", 1), Address("b", 2)]
