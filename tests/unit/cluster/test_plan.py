"""The plan of a local cluster: names, addresses, settings, links."""

from itertools import count
from pathlib import Path

import pytest

from helpers.requirements import requirement
from tidelog.cluster.api import BROKER, CONTROLLER, ClusterError, broker_id_of
from tidelog.cluster.plan import ensemble, environment, from_json, make_plan, ports_needed, to_json, with_brokers
from tidelog.cluster.zookeeper import ServerFiles


def plan_of(**options):
    return make_plan([0, 1, 2], 2, 1, count(20_000), **options)


def test_processes_are_named_by_kind_and_number():
    assert [p.name for p in plan_of().processes] == [
        *("zookeeper-1", "controller-1", "controller-2", "broker-0", "broker-1", "broker-2")
    ]


def test_every_listener_has_a_port_of_its_own_and_all_are_counted():
    for proxied in (False, True):
        plan = plan_of(links_through_proxy=proxied)
        ports = [a.port for p in plan.processes for a in p.addresses.values()] + [k.listen.port for k in plan.links]
        assert len(set(ports)) == len(ports) <= ports_needed(3, 2, 1, links_through_proxy=proxied)


def test_a_broker_gets_its_settings_as_variables():
    plan = plan_of(settings={"broker": {"segment_bytes": "1024", "rack": "r"}, "broker-1": {"rack": "s"}})
    env = environment(plan, plan["broker-1"], Path("/base/broker-1/data"))
    addresses = plan["broker-1"].addresses
    assert env == {
        "TIDELOG_BROKER_ID": "1",
        "TIDELOG_LISTENERS": f"INTERNAL://{addresses['INTERNAL']},EXTERNAL://{addresses['EXTERNAL']}",
        "TIDELOG_DATA_DIR": "/base/broker-1/data",
        "TIDELOG_ZOOKEEPER": str(plan["zookeeper-1"].addresses["CLIENT"]),
        "TIDELOG_METRICS_ADDRESS": str(addresses["METRICS"]),
        "TIDELOG_SEGMENT_BYTES": "1024",
        "TIDELOG_RACK": "s",
    }


@requirement("Brokers are added to a running cluster by a command")
def test_further_brokers_come_behind_those_that_are_there_and_change_nothing_of_them():
    plan = plan_of(agents=1, settings={"broker": {"rack": "r"}})
    grown = with_brokers(plan, [4, 7], count(30_000), settings={"broker-7": {"rack": "s"}})
    assert [p.name for p in grown.processes] == [
        *(p.name for p in plan.processes[:-1]),
        *("broker-4", "broker-7", "agent-1"),
    ]
    assert all(grown[p.name] == p for p in plan.processes)
    assert [dict(p.settings) for p in grown.of_kind("broker")] == [{"rack": "r"}] * 3 + [{}, {"rack": "s"}]
    ports = [a.port for p in grown.processes for a in p.addresses.values()]
    assert len(set(ports)) == len(ports)
    with pytest.raises(ClusterError, match="it cannot grow"):
        with_brokers(plan_of(links_through_proxy=True), [4], count(30_000))


def test_agents_come_last_and_reach_brokers_alone():
    for proxied in (False, True):
        plan = plan_of(agents=2, links_through_proxy=proxied, settings={"agent": {"topics": "t"}})
        ports = [a.port for p in plan.processes for a in p.addresses.values()] + [k.listen.port for k in plan.links]
        assert len(set(ports)) == len(ports) <= ports_needed(3, 2, 1, agents=2, links_through_proxy=proxied)
        assert [p.name for p in plan.processes][-2:] == ["agent-1", "agent-2"]
        env = environment(plan, plan["agent-2"], Path("/data"))
        brokers = {str(plan[f"broker-{n}"].addresses["INTERNAL"]) for n in range(3)}
        link_map = env.pop("TIDELOG_LINK_MAP", "")
        assert env == {
            "TIDELOG_AGENT_ID": "agent-2",
            "TIDELOG_BOOTSTRAP_SERVERS": ",".join(sorted(brokers)),
            "TIDELOG_GROUP_ID": "agents",
            "TIDELOG_METRICS_ADDRESS": str(plan["agent-2"].addresses["METRICS"]),
            "TIDELOG_TOPICS": "t",
        }
        assert {pair.partition("=")[0] for pair in link_map.split(",") if pair} == (brokers if proxied else set())


def test_with_links_through_the_proxy_every_dialled_address_is_replaced():
    plan = plan_of(links_through_proxy=True)
    env = environment(plan, plan["broker-0"], Path("/data"))
    to = {k.target: k for k in plan.links if k.source == "broker-0"}
    assert set(to) == {"zookeeper-1", "controller-1", "controller-2", "broker-1", "broker-2"}
    assert env["TIDELOG_ZOOKEEPER"] == str(to["zookeeper-1"].listen)
    assert f"{plan['broker-2'].addresses['INTERNAL']}={to['broker-2'].listen}" in env["TIDELOG_LINK_MAP"].split(",")
    # What others learn about this broker stays its real address.
    assert str(plan["broker-0"].addresses["INTERNAL"]) in env["TIDELOG_LISTENERS"]


@pytest.mark.parametrize("proxied", [False, True])
def test_several_zookeeper_servers_are_an_ensemble_that_everybody_knows(proxied):
    plan = make_plan([0], 1, 3, count(20_000), links_through_proxy=proxied)
    servers = plan.of_kind("zookeeper")
    among = ensemble(plan)
    assert list(among) == [1, 2, 3]
    ports = [a.port for p in plan.processes for a in (*p.addresses.values(), *p.among_servers.values())]
    ports += [k.listen.port for k in plan.links]
    assert len(set(ports)) == len(ports) <= ports_needed(1, 1, 3, links_through_proxy=proxied)
    asked = environment(plan, plan["broker-0"], Path("/data"))["TIDELOG_ZOOKEEPER"].split(",")
    assert asked == [str(plan.reached_by("broker-0", server)) for server in servers]
    assert from_json(to_json(plan)) == plan


def test_a_server_of_an_ensemble_is_told_who_it_is_and_who_the_others_are(tmp_path):
    plan = make_plan([0], 1, 3, count(20_000))
    among = ensemble(plan)
    server = plan["zookeeper-2"]
    ServerFiles(tmp_path, server.for_clients, number=server.number, ensemble=among).write()
    assert (tmp_path / "data" / "myid").read_text() == "2\n"
    lines = (tmp_path / "zoo.cfg").read_text().splitlines()
    quorum, election = among[3]
    assert f"server.3={quorum.host}:{quorum.port}:{election.port}" in lines


def test_one_zookeeper_server_alone_is_no_ensemble(tmp_path):
    plan = plan_of()
    assert ensemble(plan) == {}
    ServerFiles(tmp_path, plan["zookeeper-1"].for_clients, ensemble=ensemble(plan)).write()
    assert not (tmp_path / "data" / "myid").exists() and "server." not in (tmp_path / "zoo.cfg").read_text()


def test_the_plan_survives_its_file():
    plan = plan_of(links_through_proxy=True, settings={"controller": {"suspect_hold_ms": "500"}})
    again = from_json(to_json(plan))
    assert again == plan
    assert again["controller-1"].addresses["CONTROLLER"] == plan["controller-1"].addresses["CONTROLLER"]


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"processes": [{}], "links": []}'])
def test_a_file_that_is_no_plan_is_named(text):
    with pytest.raises(ClusterError, match=r"cluster\.json"):
        from_json(text)


@pytest.mark.parametrize(
    "arguments, settings, complaint",
    [
        (([], 1, 1), {}, "at least one broker"),
        (([0], 0, 1), {}, "controller"),
        (([0], 1, 0), {}, "one ZooKeeper server"),
        (([0], 1, 1), {"broker-7": {}}, "broker-7"),
    ],
)
def test_what_cannot_be_built_is_refused(arguments, settings, complaint):
    with pytest.raises(ClusterError, match=complaint):
        make_plan(*arguments, count(20_000), settings=settings)


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(ClusterError, match=r"broker-9.*broker-2"):
        plan_of()["broker-9"]
    assert broker_id_of("broker-2") == 2
    with pytest.raises(ClusterError, match="controller-1 is not a broker"):
        broker_id_of("controller-1")


@pytest.mark.parametrize("proxied", [False, True])
def test_processes_accept_their_variables(monkeypatch, proxied):
    from tidelog.config import AgentSettings, BrokerSettings, ControllerSettings, load

    plan = plan_of(agents=1, links_through_proxy=proxied)
    kinds = (("broker-1", BrokerSettings), ("controller-2", ControllerSettings), ("agent-1", AgentSettings))
    for name, kind in kinds:
        with monkeypatch.context() as patch:
            for key, value in environment(plan, plan[name], Path("/data")).items():
                patch.setenv(key, value)
            settings = load(kind)
        assert bool(settings.link_map) is proxied
        assert settings.metrics_address == plan[name].addresses["METRICS"]


def test_brokers_listen_for_clients_where_they_are_told():
    plan = make_plan([0, 1], 1, 1, count(20_000))
    moved = plan.with_client_ports([19_092, 29_092, 39_092])
    assert [broker.for_clients.port for broker in moved.of_kind(BROKER)] == [19_092, 29_092]
    assert [each.dialled for each in moved.processes] == [each.dialled for each in plan.processes]
    assert plan.with_client_ports([]).processes == plan.processes


@pytest.mark.parametrize(("brokers", "factor"), [([7], "1"), ([0, 1], "2"), ([0, 1, 2], None)])
def test_a_small_cluster_creates_topics_that_it_can_hold(brokers, factor):
    (controller,) = make_plan(brokers, 1, 1, count(20_000)).of_kind(CONTROLLER)
    assert controller.settings.get("default_replication_factor") == factor
