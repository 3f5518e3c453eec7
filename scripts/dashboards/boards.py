"""The six boards."""

from typing import Final

from dashboards import control, groups, health, internals, pipeline, replication
from dashboards.panels import Board

BOARDS: Final = (
    Board(
        "tidelog-health",
        "Cluster health",
        "Is everything healthy, and if not, what is wrong?",
        {
            "Now": health.CLUSTER,
            "Data": (*health.DATA, health.ACTIVE_FAULTS),
            "What happened": (health.PROCESSES, health.BROKER_STATES, health.CONTROLLERS, health.ALERTS),
            "Load": health.LOAD,
        },
        ("topic",),
    ),
    Board(
        "tidelog-replication",
        "Replication and chaos",
        "What did a fault do to leaders and replicas, what did clients notice, and was anything lost?",
        {
            "Now": (health.ACTIVE_CONTROLLERS, health.UNDER_MIN_ISR, health.UNCLEAN, health.ACTIVE_FAULTS),
            "What happened": (
                health.FAULTS,
                health.BROKER_STATES,
                health.CONTROLLERS,
                health.GROUP_STATE,
                health.PROCESSES,
                health.ISR_SIZES,
            ),
            "Availability": replication.AVAILABILITY,
            "Correctness": replication.CORRECTNESS,
            "Replication": replication.REPLICATION,
        },
        ("topic", "group"),
        replication.STORY,
    ),
    Board(
        "tidelog-groups",
        "Consumer groups",
        "Does every group keep up, and what did its rebalances cost?",
        {
            "What happened": (health.GROUP_STATE,),
            "Groups": groups.GROUPS,
            "Agents": groups.AGENTS,
            "End to end": (replication.ROUND_TRIP,),
        },
        ("group", "topic"),
    ),
    Board(
        "tidelog-control",
        "Controller and ZooKeeper",
        "Which controller decides, how long does a decision take, and does ZooKeeper answer?",
        {
            "What happened": (health.CONTROLLERS, health.BROKER_STATES),
            "Controller": control.CONTROLLER,
            "ZooKeeper": control.ZOOKEEPER,
        },
    ),
    Board(
        "tidelog-internals",
        "Broker internals",
        "Where does the time of a request go, what do moves and compaction do, and how much capacity do processes "
        "and disks have left?",
        {
            "Requests": internals.REQUESTS,
            "Logs": internals.LOGS,
            "Moves, compaction and scrub": internals.UPKEEP,
            "Processes": internals.PROCESS,
        },
    ),
    Board(
        "tidelog-pipeline",
        "Spark jobs",
        "Do the Spark jobs that read topics keep up, and how long do their micro-batches take?",
        {"Pipeline": pipeline.PANELS},
        ("topic",),
        played=False,
    ),
)
