"""The controller, and ZooKeeper as it and the brokers see it and as it says itself."""

from typing import Final

from dashboards.panels import RATE, Kind, Panel, at_least, or_none, quantile
from dashboards.proof import Fault, Proof, under_load
from dashboards.rules import of_active

CONTROLLER: Final = (
    Panel(
        "Leader elections",
        {f"sum by (reason) (increase(tidelog_controller_leader_elections_total{RATE}))": "{{reason}}"},
        "Partitions that got a leader, by reason.",
        (
            Proof(Fault.KILL_LEADER, "max == 0", "max{reason=suspected} > 0, max{reason=broker_up} > 0", "last == 0"),
            Proof(Fault.MOVE, "max{reason=reassigned} == 0", "max{reason=reassigned} > 0", "last == 0"),
        ),
    ),
    Panel(
        "Election time, p99",
        {quantile(0.99, "tidelog_controller_leader_election_duration_seconds"): "p99"},
        "Time from the trigger until the decisions were written.",
        (Proof(Fault.KILL_LEADER, "series == 0", "max > 0, max < 5"),),
        unit="s",
    ),
    Panel(
        "Steps of a broker's failover, p99",
        {quantile(0.99, "tidelog_controller_broker_failover_step_seconds", by="step"): "{{step}}"},
        "detect: until the loss of the broker was noticed. decide, write: in ZooKeeper. notify: until every broker has "
        "answered.",
        (Proof(Fault.KILL_LEADER, "series == 0", "series == 4, max < 10"),),
        unit="s",
    ),
    Panel(
        "Controller epoch",
        {"max(tidelog_controller_epoch)": "controller epoch"},
        "Each step is a failover. Later writes of an earlier controller are refused because of it.",
        (Proof(Fault.KILL_CONTROLLER, "changes == 0", "rise == 1", "changes == 0"),),
    ),
    Panel(
        "Failovers",
        {f"sum(increase(tidelog_controller_failovers_total{RATE}))": "failovers"},
        "Number of times that a controller became active.",
        (Proof(Fault.KILL_CONTROLLER, "max == 0", "max > 0", "last == 0"),),
    ),
    Panel(
        "Time of a failover, p99",
        {
            quantile(0.99, "tidelog_controller_failover_duration_seconds"): "until it acts",
            quantile(0.99, "tidelog_controller_failover_step_seconds", by="step"): "{{step}}",
        },
        "Time from winning the election. read: the cluster's state from ZooKeeper. notify: until every broker has answered.",
        (Proof(Fault.KILL_CONTROLLER, "series == 0", "max > 0, max < 20"),),
        unit="s",
    ),
    Panel(
        "Event queue",
        {"tidelog_controller_event_queue_size": "{{instance}}"},
        "Events that wait.",
        (
            under_load("series == 2, max < 50"),
            Proof(Fault.KILL_CONTROLLER, during="fewest <= 1", after="fewest == 2, last < 50"),
        ),
    ),
    Panel(
        "Event queue wait, p99",
        {quantile(0.99, "tidelog_controller_event_queue_wait_seconds"): "p99"},
        "Time from the arrival of an event until its turn.",
        (Proof(Fault.KILL_LEADER, during="max > 0, max < 5"),),
        unit="s",
    ),
    Panel(
        "Event processing, p99",
        {quantile(0.99, "tidelog_controller_event_processing_seconds", by="event"): "{{event}}"},
        "By kind of event.",
        (Proof(Fault.KILL_LEADER, during="max > 0, max < 5, series >= 3"),),
        unit="s",
    ),
    Panel(
        "Brokers by state",
        {"sum by (state) (tidelog_controller_brokers and on (instance) tidelog_controller_active == 1)": "{{state}}"},
        "Suspected: the broker's stream to the controller broke and nothing listens on its port.",
        (
            Proof(
                Fault.KILL_LEADER,
                "min{state=alive} == 3, max{state=suspected} == 0",
                "min{state=alive} <= 2, max{state=suspected} == 1",
                "last{state=alive} == 3, last{state=suspected} == 0",
            ),
        ),
    ),
    Panel(
        "Topics and partitions",
        {of_active("tidelog_controller_topics"): "topics", of_active("tidelog_controller_partitions"): "partitions"},
        "As the active controller knows them. Nothing is shown while no controller is active.",
        (
            under_load("min == 3, max == 3", of="topics"),
            under_load("min == 8, max == 8", of="partitions"),
            Proof(Fault.KILL_CONTROLLER, during="fewest == 0, min > 0", after="min > 0"),
        ),
    ),
    Panel(
        "Partitions being moved",
        {of_active("tidelog_controller_reassigning_partitions"): "partitions"},
        "Reassignments that are not complete: a target is not in sync yet. `tidelog reassign list` shows how far each one "
        "is, and *Broker internals* shows how fast they copy.",
        (under_load("series == 1, max == 0"), Proof(Fault.MOVE, "max == 0", "max == 1", "max == 0")),
    ),
    Panel(
        "Not on the preferred leader",
        {of_active("tidelog_controller_preferred_leader_imbalance"): "partitions"},
        "Partitions led by a replica other than the first in their list.",
        (under_load("max == 0"), Proof(Fault.KILL_LEADER, "max == 0", "max >= 2")),
    ),
    Panel(
        "Held back",
        {of_active("tidelog_controller_vetoed_partitions"): "partitions"},
        "Partitions without a leader because the ISR member that is back may have lost records. They wait for an operator or "
        "for another member.",
        (under_load("series == 1, max == 0"), Proof(Fault.KILL_LEADER, after="max == 0")),
    ),
    Panel(
        "Requests to controllers",
        {f'sum by (api) (rate(tidelog_requests_total{{job="controller"}}{RATE}))': "{{api}}"},
        "AlterIsr from leaders; requests about topics and shutdowns from tools and brokers.",
        (Proof(Fault.PAUSE_FOLLOWER, during="max{api=AlterIsr} > 0", after="last{api=AlterIsr} == 0"),),
        unit="reqps",
    ),
    Panel(
        "Outcome of AlterIsr",
        {or_none(f"sum by (error) (increase(tidelog_alter_isr_requests_total{RATE}))", "error", "broker"): "{{error}}"},
        "Requests from leaders, by the error of the whole response. NO_ANSWER: the call broke.",
        (under_load("max == 0"), Proof(Fault.PAUSE_FOLLOWER, "max == 0", "max{error=NONE} > 0", "last == 0")),
    ),
)

ZOOKEEPER: Final = (
    Panel(
        "Sessions",
        {'tidelog_zk_session_state{state="connected"}': "{{instance}}"},
        "Sessions of brokers and controllers.",
        (Proof(Fault.KILL_ZOOKEEPER, "min == 1, fewest == 5", "min == 0", "last == 1, fewest == 5"),),
        Kind.TIMELINE,
        colors=at_least(1),
        names={0: "not connected", 1: "connected"},
    ),
    Panel(
        "Request latency, p99",
        {quantile(0.99, "tidelog_zk_request_duration_seconds", by="op"): "{{op}}"},
        "Latency as brokers and controllers see it.",
        (Proof(Fault.KILL_LEADER, during="max > 0, max < 10, series >= 2"),),
        unit="s",
    ),
    Panel(
        "Session expirations",
        {f"sum by (instance) (increase(tidelog_zk_session_expirations_total{RATE}))": "{{instance}}"},
        "Sessions that ZooKeeper expired, together with what they had registered.",
        (
            under_load("series == 5, max == 0"),
            Proof(Fault.KILL_LEADER, during="max == 0", after="series == 5, max == 0"),
        ),
    ),
    Panel(
        "Servers",
        {"tidelog_zookeeper_up": "{{server}}"},
        "Up: the server answers the exporter.",
        (Proof(Fault.KILL_ZOOKEEPER, "min == 1", "min == 0", "last == 1"),),
        Kind.TIMELINE,
        colors=at_least(1),
        names={0: "down", 1: "up"},
    ),
    Panel(
        "Server roles",
        {"sum by (state) (tidelog_zookeeper_server_state)": "{{state}}"},
        "An ensemble has one leader.",
        (Proof(Fault.KILL_ZOOKEEPER, "min{state=standalone} == 1", "fewest == 0", "last{state=standalone} == 1"),),
    ),
    Panel(
        "Server latency",
        {"tidelog_zookeeper_avg_latency": "{{server}}"},
        "Average latency reported by the server.",
        (under_load("series == 1, max < 1000"), Proof(Fault.KILL_ZOOKEEPER, during="fewest == 0", after="fewest == 1")),
        unit="ms",
    ),
    Panel(
        "Outstanding requests",
        {"tidelog_zookeeper_outstanding_requests": "{{server}}"},
        "Requests queued in a server.",
        (
            under_load("series == 1, max < 50"),
            Proof(Fault.KILL_ZOOKEEPER, during="fewest == 0", after="fewest == 1, last < 50"),
        ),
    ),
    Panel(
        "Connections",
        {"tidelog_zookeeper_num_alive_connections": "{{server}}"},
        "Connections of brokers and controllers.",
        (
            under_load("min >= 5"),
            Proof(Fault.KILL_LEADER, during="drop >= 1"),
            Proof(Fault.KILL_ZOOKEEPER, after="last >= 5"),
        ),
    ),
    Panel(
        "Znodes and watches",
        {"max(tidelog_zookeeper_znode_count)": "znodes", "sum(tidelog_zookeeper_watch_count)": "watches"},
        "One znode for each topic and each partition; few watches, whatever the number of partitions.",
        (
            under_load("min > 10", of="znodes"),
            under_load("min > 4", of="watches"),
            Proof(Fault.KILL_LEADER, during="drop >= 1"),
        ),
    ),
)
