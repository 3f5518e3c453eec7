#!/usr/bin/env python3
"""Writes deploy/grafana/dashboards/*.json from the boards described here and in dashboards, or checks that they are up to date.

A board is data: rows of panels, a panel is its queries and how to show them. Grafana's own builders turn it into JSON, so a
field that Grafana does not know cannot be written.
"""

import argparse
import json
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from dashboards.groups import AGENTS, GROUPS
from dashboards.panels import GREEN, ORANGE, RATE, RED, TOPIC, Kind, Panel, alarm_above, at_least, exactly, quantile

with warnings.catch_warnings():
    # The classic schema is the one that every Grafana provisions from files; the SDK would rather have the newer one.
    warnings.filterwarnings("ignore", "Prefer using dashboardv2", DeprecationWarning)
    from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, statetimeline, timeseries
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.models import common as common_model
    from grafana_foundation_sdk.models import dashboard as model

ROOT: Final = Path(__file__).resolve().parent.parent
OUT: Final = ROOT / "deploy" / "grafana" / "dashboards"
SOURCE: Final = model.DataSourceRef(type_val="prometheus", uid="${datasource}")


def health(title: str, query: str, what: str, colors: tuple[tuple[float | None, str], ...]) -> Panel:
    return Panel(title, {query: ""}, what, Kind.STAT, width=3, colors=colors)


HEALTH: Final = (
    health(
        "Brokers alive",
        'sum(tidelog_controller_brokers{state="alive"})',
        "As the active controller sees them.",
        at_least(1),
    ),
    health("Active controllers", "sum(tidelog_controller_active)", "Exactly one, but for a failover.", exactly(1)),
    health(
        "Without leader",
        "sum(tidelog_controller_offline_partitions)",
        "Partitions that take no writes.",
        alarm_above(1),
    ),
    health(
        "Under replicated",
        "sum(tidelog_broker_under_replicated_partitions)",
        "Partitions with fewer replicas in sync than assigned.",
        ((None, GREEN), (1, ORANGE)),
    ),
    health(
        "Under min ISR", "sum(tidelog_broker_under_min_isr_partitions)", "acks=all is refused there.", alarm_above(1)
    ),
    health(
        "Unclean elections",
        "sum(tidelog_controller_unclean_leader_elections_total)",
        "Leaders from outside the ISR: acknowledged records may be lost.",
        alarm_above(1),
    ),
    health(
        "Records truncated",
        "sum(tidelog_replica_truncated_records_total)",
        "Cut from followers' logs; none of them was acknowledged with acks=all.",
        ((None, GREEN), (1, ORANGE)),
    ),
    health(
        "ZooKeeper sessions",
        'sum(tidelog_zk_session_state{state="connected"})',
        "Connected, of all brokers and controllers.",
        at_least(1),
    ),
)

TIMELINES: Final = (
    Panel(
        "Processes",
        {'up{job=~"broker|controller|agent"}': "{{instance}}"},
        "Answers a scrape; a process whose event loop hangs does not.",
        Kind.TIMELINE,
        width=12,
        colors=at_least(1),
        names={"0": "down", "1": "up"},
    ),
    Panel(
        "Active controller",
        {"tidelog_controller_active": "{{instance}}"},
        "Who acts.",
        Kind.TIMELINE,
        width=12,
        colors=((None, "gray"), (1, GREEN)),
        names={"0": "standby", "1": "active"},
    ),
    Panel(
        "Leader by partition",
        {f"max by (topic, partition) (tidelog_partition_leader{{{TOPIC}}})": "{{topic}}-{{partition}}"},
        "Broker id, told by the leader alone: a gap is a partition without a leader.",
        Kind.TIMELINE,
        width=12,
        colors=((None, "blue"), (2, "purple"), (3, "yellow"), (4, "orange"), (5, "green"), (6, "red")),
    ),
    Panel(
        "ISR size by partition",
        {f"max by (topic, partition) (tidelog_partition_isr_size{{{TOPIC}}})": "{{topic}}-{{partition}}"},
        "Told by the leader.",
        Kind.TIMELINE,
        width=12,
        colors=((None, RED), (2, ORANGE), (3, GREEN)),
    ),
)

ON_LEADER: Final = "and on (instance, topic, partition) tidelog_partition_leader"
REPLICATION: Final = (
    Panel(
        "Log end above high watermark",
        {
            "max by (topic, partition) ((tidelog_partition_log_end_offset"
            f"{{{TOPIC}}} - tidelog_partition_high_watermark{{{TOPIC}}}) {ON_LEADER})": "{{topic}}-{{partition}}"
        },
        "Records appended by the leader and not committed yet. It grows while a member of the ISR does not answer.",
    ),
    Panel(
        "Follower lag, records",
        {f"max by (follower) (tidelog_replica_lag_records{{{TOPIC}}})": "broker {{follower}}"},
        "The worst partition of each follower.",
    ),
    Panel(
        "Follower lag, seconds",
        {f"max by (follower) (tidelog_replica_lag_seconds{{{TOPIC}}})": "broker {{follower}}"},
        "Since the first append that is not acknowledged; past replica.lag.time.max the follower leaves the ISR.",
        unit="s",
    ),
    Panel(
        "Replication",
        {f"sum by (instance, direction) (rate(tidelog_replication_bytes_total{RATE}))": "{{instance}} {{direction}}"},
        "Batches sent to followers and received from leaders.",
        unit="Bps",
    ),
    Panel(
        "ISR shrinks and expansions",
        {
            f"sum(increase(tidelog_isr_shrinks_total{RATE}))": "shrinks",
            f"sum(increase(tidelog_isr_expands_total{RATE}))": "expansions",
            f"sum(increase(tidelog_isr_update_failures_total{RATE}))": "refused",
        },
        "Committed changes, and proposals that the controller refused.",
    ),
    Panel(
        "Truncated records",
        {f"sum by (instance) (increase(tidelog_replica_truncated_records_total{RATE}))": "{{instance}}"},
        "Cut by followers whose history left the leader's.",
    ),
    Panel(
        "Leader epoch",
        {f"max by (topic, partition) (tidelog_partition_leader_epoch{{{TOPIC}}})": "{{topic}}-{{partition}}"},
        "A step is an election.",
    ),
    Panel(
        "Follower behind the high watermark",
        {"tidelog_replica_fetcher_max_lag_records": "{{instance}}"},
        "The farthest replica of each broker, seen from the follower's side.",
    ),
    Panel(
        "Log size",
        {"sum by (instance) (tidelog_log_size_bytes)": "{{instance}}"},
        "Segments of all replicas.",
        unit="bytes",
    ),
)

ERRORS: Final = f'sum by (api, code) (rate(tidelog_requests_total{{code!="NONE"}}{RATE})) or vector(0)'
PRODUCE: Final = 'api="Produce",phase="total"'
TRAFFIC: Final = (
    Panel(
        "Records in",
        {f"sum by (topic) (rate(tidelog_records_in_total{{{TOPIC}}}{RATE}))": "{{topic}}"},
        "Appended by leaders.",
        unit="short",
    ),
    Panel(
        "Bytes in and out",
        {
            f"sum(rate(tidelog_bytes_in_total{{{TOPIC}}}{RATE}))": "in",
            f"sum(rate(tidelog_bytes_out_total{{{TOPIC}}}{RATE}))": "out",
        },
        "From producers and to readers, without replication.",
        unit="Bps",
    ),
    Panel(
        "Requests",
        {f"sum by (api) (rate(tidelog_requests_total{RATE}))": "{{api}}"},
        "Answered by brokers and controllers.",
        unit="reqps",
    ),
    Panel("Errors", {ERRORS: "{{api}} {{code}}"}, "Requests whose first error was this one.", unit="reqps"),
    Panel(
        "Produce refused",
        {f"sum by (reason) (rate(tidelog_produce_rejected_total{RATE})) or vector(0)": "{{reason}}"},
        "Partitions of produce requests; nothing was appended, but for NOT_ENOUGH_REPLICAS_AFTER_APPEND.",
        unit="reqps",
    ),
    Panel(
        "Parked requests",
        {"sum by (op) (tidelog_purgatory_size)": "{{op}}"},
        "acks=all that wait for followers, fetches that wait for records.",
    ),
    Panel(
        "Produce latency",
        {quantile(q, "tidelog_request_duration_seconds", PRODUCE): f"p{q * 100:g}" for q in (0.5, 0.95, 0.99)},
        "At the leader, from the request to its answer.",
        unit="s",
    ),
    Panel(
        "Produce latency by phase, p99",
        {quantile(0.99, "tidelog_request_duration_seconds", 'api="Produce"', "phase"): "{{phase}}"},
        "local: checked and appended. remote: waiting for followers.",
        unit="s",
    ),
    Panel(
        "Fetch, local phase, p99",
        {quantile(0.99, "tidelog_request_duration_seconds", 'api="Fetch",phase="local"', "instance"): "{{instance}}"},
        "Reading, without the wait for new records.",
        unit="s",
    ),
)

CONTROLLER: Final = (
    Panel(
        "Leader elections",
        {f"sum by (reason) (increase(tidelog_controller_leader_elections_total{RATE}))": "{{reason}}"},
        "Partitions that got a leader, by why.",
    ),
    Panel(
        "Election time, p99",
        {quantile(0.99, "tidelog_controller_leader_election_duration_seconds"): "p99"},
        "From the trigger until the decisions were written.",
        unit="s",
    ),
    Panel(
        "Controller failovers",
        {"sum(tidelog_controller_failovers_total)": "failovers", "max(tidelog_controller_epoch)": "controller epoch"},
        "How often a controller became active.",
    ),
    Panel("Event queue", {"tidelog_controller_event_queue_size": "{{instance}}"}, "Events that wait."),
    Panel(
        "Event queue wait, p99",
        {quantile(0.99, "tidelog_controller_event_queue_wait_seconds"): "p99"},
        "From arrival until its turn.",
        unit="s",
    ),
    Panel(
        "Event processing, p99",
        {quantile(0.99, "tidelog_controller_event_processing_seconds", by="event"): "{{event}}"},
        "By kind of event.",
        unit="s",
    ),
    Panel(
        "Brokers",
        {"sum by (state) (tidelog_controller_brokers)": "{{state}}"},
        "Suspected: its stream to the controller broke and nothing listens there.",
    ),
    Panel(
        "Topics and partitions",
        {"sum(tidelog_controller_topics)": "topics", "sum(tidelog_controller_partitions)": "partitions"},
        "As the active controller knows them.",
    ),
    Panel(
        "Not on the preferred leader",
        {"sum(tidelog_controller_preferred_leader_imbalance)": "partitions"},
        "Partitions led by another replica than the first of their list.",
    ),
)

ZOOKEEPER: Final = (
    Panel(
        "Sessions",
        {'tidelog_zk_session_state{state="connected"}': "{{instance}}"},
        "Of brokers and controllers.",
        Kind.TIMELINE,
        colors=at_least(1),
        names={"0": "not connected", "1": "connected"},
    ),
    Panel(
        "Request latency, p99",
        {quantile(0.99, "tidelog_zk_request_duration_seconds", by="op"): "{{op}}"},
        "As brokers and controllers see it.",
        unit="s",
    ),
    Panel(
        "Session expirations",
        {"sum(tidelog_zk_session_expirations_total)": "expirations"},
        "Since each process started.",
    ),
    Panel(
        "Servers",
        {"tidelog_zookeeper_up": "{{server}}"},
        "Answers the exporter.",
        Kind.TIMELINE,
        colors=at_least(1),
        names={"0": "down", "1": "up"},
    ),
    Panel(
        "Server roles", {"sum by (state) (tidelog_zookeeper_server_state)": "{{state}}"}, "One leader in an ensemble."
    ),
    Panel("Server latency", {"tidelog_zookeeper_avg_latency": "{{server}}"}, "Average of the server.", unit="ms"),
    Panel("Outstanding requests", {"tidelog_zookeeper_outstanding_requests": "{{server}}"}, "Queued in a server."),
    Panel("Connections", {"tidelog_zookeeper_num_alive_connections": "{{server}}"}, "Of brokers and controllers."),
    Panel(
        "Znodes and watches",
        {"max(tidelog_zookeeper_znode_count)": "znodes", "sum(tidelog_zookeeper_watch_count)": "watches"},
        "A znode a topic and a partition; few watches, whatever the number of partitions.",
    ),
)

PROCESS: Final = (
    Panel("CPU", {f"rate(process_cpu_seconds_total{RATE})": "{{instance}}"}, "Of one core.", unit="percentunit"),
    Panel("Memory", {"process_resident_memory_bytes": "{{instance}}"}, "Resident.", unit="bytes"),
    Panel("Open files", {"process_open_fds": "{{instance}}"}, "Files and sockets."),
    Panel(
        "Event loop lag",
        {"tidelog_event_loop_lag_seconds": "{{instance}}"},
        "How late a timer was at worst since the last scrape; past a third of the session timeout the session is in danger.",
        unit="s",
    ),
    Panel(
        "Log flush, p99",
        {quantile(0.99, "tidelog_log_flush_duration_seconds", by="instance"): "{{instance}}"},
        "Of one fsync, with flush=sync and at every roll of a segment.",
        unit="s",
    ),
    Panel("Log recovery", {"tidelog_log_recovery_duration_seconds": "{{instance}}"}, "At the last start.", unit="s"),
)

ROWS: Final[Mapping[str, tuple[Panel, ...]]] = {
    "Health": HEALTH,
    "What happened": TIMELINES,
    "Replication": REPLICATION,
    "Produce and fetch": TRAFFIC,
    "Controller": CONTROLLER,
    "Consumer groups": GROUPS,
    "Agents": AGENTS,
    "ZooKeeper": ZOOKEEPER,
    "Processes": PROCESS,
}


def ref_id(number: int) -> str:
    return chr(ord("A") + number)


def drawn(panel: Panel, height: int) -> Any:
    """The builder of one panel."""
    builder: Any
    if panel.kind is Kind.STAT:
        builder = stat.Panel().color_mode(common_model.BigValueColorMode.BACKGROUND)
        builder.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    elif panel.kind is Kind.TIMELINE:
        builder = statetimeline.Panel().merge_values(True).row_height(0.9).fill_opacity(80)
    else:
        builder = timeseries.Panel().min(0).fill_opacity(10)
        builder.tooltip(common.VizTooltipOptions().mode(common_model.TooltipDisplayMode.MULTI))
    builder.title(panel.title).description(panel.what).unit(panel.unit).datasource(SOURCE)
    builder.span(panel.width).height(height)
    if panel.colors:
        steps = [model.Threshold(value, color) for value, color in panel.colors]
        builder.thresholds(dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(steps))
        builder.color_scheme(dashboard.FieldColor().mode(model.FieldColorModeId.THRESHOLDS))
    if panel.names:
        texts = {value: model.ValueMappingResult(text=text) for value, text in panel.names.items()}
        builder.mappings([model.ValueMap(options=texts)])
    for number, (query, legend) in enumerate(panel.queries.items()):
        target = prometheus.Dataquery().expr(query).legend_format(legend or "__auto").ref_id(ref_id(number))
        builder.with_target(target.datasource(SOURCE))
    return builder


def selection(label: str, family: str) -> Any:
    """A variable that narrows the panels: the values of a label, all of them at first."""
    return (
        dashboard.QueryVariable(label)
        .label(label.capitalize())
        .datasource(SOURCE)
        .query(f"label_values({family}, {label})")
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(model.VariableOption(selected=True, text="All", value="$__all"))
    )


def board() -> Any:
    made = (
        dashboard.Dashboard("Cluster and replication")
        .uid("tidelog-cluster")
        .tags(["tidelog"])
        .refresh("5s")
        .time("now-15m", "now")
        .timezone("browser")
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .readonly()
        .with_variable(dashboard.DatasourceVariable("datasource").type("prometheus").label("Data source"))
        .with_variable(selection("topic", "tidelog_partition_high_watermark"))
        .with_variable(selection("group", "tidelog_group_members"))
    )
    for title, panels in ROWS.items():
        made.with_row(dashboard.Row(title))
        for panel in panels:
            made.with_panel(drawn(panel, height=4 if panel.kind is Kind.STAT else 8))
    return made.build()


def numbered(made: Any) -> dict[str, Any]:
    """The board as plain JSON values, each panel with an id of its own: its place, so that a diff stays small."""
    plain: dict[str, Any] = json.loads(json.dumps(made, cls=JSONEncoder))
    for number, panel in enumerate(plain["panels"], 1):
        panel["id"] = number
    return plain


def files() -> dict[Path, str]:
    return {OUT / "tidelog.json": json.dumps(numbered(board()), indent=2, sort_keys=True) + "\n"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if a file differs; write nothing")
    check = parser.parse_args().check
    made = files()
    stale = [path for path, text in made.items() if not path.exists() or path.read_text() != text]
    if check and stale:
        sys.exit(f"not up to date: {', '.join(str(p.relative_to(ROOT)) for p in stale)}; run make dashboards")
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(made[path])
    print(f"{len(made)} dashboards, {len(stale)} {'stale' if check else 'written'}")


if __name__ == "__main__":
    main()
