"""`tidelog topics`: kafka-topics' flags, columns and filters."""

import base64
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidelog.cli import completion, parse
from tidelog.cli.commands import configs
from tidelog.cli.commands.configs import DeleteOption
from tidelog.cli.commands.get_offsets import get_offsets
from tidelog.cli.completion import TopicArgument, TopicOption, TopicPatternOption
from tidelog.cli.connection import Connection, connected
from tidelog.cli.errors import CommandError, no_topic
from tidelog.cli.show import Format, FormatOption, note, options_of, print_json, print_lines
from tidelog.errors import ErrorCode, TidelogError

if TYPE_CHECKING:
    from tidelog.client.admin import Admin
    from tidelog.wire.messages import CreatedTopic, PartitionDescription, TopicDescription

app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.command()
@connected
async def create(
    on: Connection,
    name: TopicArgument = None,
    topic: TopicOption = None,
    partitions: Annotated[
        int | None, typer.Option("--partitions", help="Default: the cluster's default_partitions.")
    ] = None,
    replication_factor: Annotated[
        int | None, typer.Option("--replication-factor", help="Default: the cluster's default_replication_factor.")
    ] = None,
    replica_assignment: Annotated[
        str | None,
        typer.Option(
            "--replica-assignment",
            metavar="ID:ID,ID:ID",
            help="Replicas of each partition, the preferred leader first; instead of the two options above.",
        ),
    ] = None,
    config: Annotated[
        list[str] | None, typer.Option("--config", metavar="KEY=VALUE", help="A topic setting, say flush=sync.")
    ] = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="An existing topic is no error.")] = False,
    output: FormatOption = Format.TEXT,
) -> None:
    """Create a topic.

    Example: tidelog topics create events --partitions 12 --replication-factor 3 --config min.insync.replicas=2
    """
    topic_name = parse.one_topic(name, topic)
    if replica_assignment is not None and (partitions is not None or replication_factor is not None):
        raise CommandError("--replica-assignment excludes --partitions and --replication-factor", 2)
    _check_positive("--partitions", partitions)
    _check_positive("--replication-factor", replication_factor)
    assignment = _parse_assignment(replica_assignment)
    configs = parse.pairs("--config", config or ())
    from tidelog.client.changes import DEFAULT as CLUSTER_DEFAULT

    created = None
    async with on.admin() as admin:
        with ignored(ErrorCode.TOPIC_ALREADY_EXISTS, if_not_exists):
            created = await admin.create_topic(
                topic_name,
                CLUSTER_DEFAULT if partitions is None else partitions,
                CLUSTER_DEFAULT if replication_factor is None else replication_factor,
                configs=configs,
                assignment=assignment,
            )
    if output is Format.JSON:
        made: dict[str, Any] = {} if created is None else _created_json(created)
        print_json({"topic": topic_name, **made, "created": created is not None})
    elif created is not None:
        print(f"Created topic {topic_name}.")


@app.command("list")
@connected
async def list_(
    on: Connection,
    pattern: Annotated[
        str | None,
        typer.Option(
            "--topic", help="Only names that match this regular expression.", autocompletion=completion.topics
        ),
    ] = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """List the names of topics.

    Example: tidelog topics list --topic 'ev.*'
    """
    matches = parse.pattern("--topic", pattern)

    async with on.admin() as admin:
        names = [name for name in await admin.list_topics() if matches.fullmatch(name)]
    if output is Format.JSON:
        print_json(names)
    else:
        print_lines(names)


@app.command()
@connected
async def describe(
    on: Connection,
    name: TopicArgument = None,
    pattern: TopicPatternOption = None,
    under_replicated: Annotated[
        bool, typer.Option("--under-replicated-partitions", help="Only partitions with replicas out of sync.")
    ] = False,
    unavailable: Annotated[
        bool, typer.Option("--unavailable-partitions", help="Only partitions without a leader.")
    ] = False,
    under_min_isr: Annotated[
        bool, typer.Option("--under-min-isr-partitions", help="Only partitions that refuse acks=all.")
    ] = False,
    at_min_isr: Annotated[
        bool, typer.Option("--at-min-isr-partitions", help="Only partitions that one more loss would stop.")
    ] = False,
    overrides: Annotated[
        bool, typer.Option("--topics-with-overrides", help="Only topics with settings of their own.")
    ] = False,
    output: FormatOption = Format.TEXT,
) -> None:
    """Describe topics: leader, replicas and in-sync replicas of each partition.

    Example: tidelog topics describe events --under-replicated-partitions
    """
    wanted = name or pattern
    matches = parse.pattern("--topic", pattern if name is None else re.escape(name))

    async with on.admin() as admin:
        topics = await admin.describe_topics()
    found = [t for t in topics if t.error_code is ErrorCode.NONE and matches.fullmatch(t.name)]
    if not found and wanted is not None:
        raise no_topic(wanted)
    if overrides:
        found = [t for t in found if t.configs]
    tests = [
        test
        for test, on in (
            (_is_under_replicated, under_replicated),
            (_is_unavailable, unavailable),
            (_is_under_min_isr, under_min_isr),
            (_is_at_min_isr, at_min_isr),
        )
        if on
    ]
    chosen = [(t, [p for p in t.partitions if all(test(t, p) for test in tests)]) for t in found]
    if tests:
        chosen = [(t, ps) for t, ps in chosen if ps]
    if output is Format.JSON:
        print_json([_topic_json(t, ps) for t, ps in chosen])
        return
    for t, ps in chosen:
        if not tests:
            print(_topic_line(t))
        if not overrides:
            for p in ps:
                print(_partition_line(t, p))


@app.command()
@connected
async def alter(
    on: Connection,
    name: TopicArgument = None,
    topic: TopicOption = None,
    partitions: Annotated[
        int | None, typer.Option("--partitions", help="How many there are to be in the end; more than now.")
    ] = None,
    replica_assignment: Annotated[
        str | None,
        typer.Option(
            "--replica-assignment",
            metavar="ID:ID,ID:ID",
            help="Replicas of all partitions, as kafka-topics has it; those that exist stay where they are.",
        ),
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", metavar="KEY=VALUE,...", help="Settings to set, say retention.ms=1000."),
    ] = None,
    delete_config: DeleteOption = None,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="A topic that does not exist is no error.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check only, change nothing.")] = False,
    output: FormatOption = Format.TEXT,
) -> None:
    """Add partitions to a topic, or change its settings. Records stay where they are; with more partitions keys go to other
    ones than before.

    Example: tidelog topics alter --topic events --partitions 24 --config retention.ms=86400000
    """
    topic_name = parse.one_topic(name, topic)
    added, deleted = configs.settings_of(config or ()), configs.keys_of(delete_config or ())
    reconfigures = bool(added or deleted)
    if partitions is None and not reconfigures:
        raise CommandError("--partitions, --config or --delete-config is missing: what is to change", 2)
    _check_positive("--partitions", partitions)
    assignment = _parse_assignment(replica_assignment)
    if assignment and len(assignment) != partitions:
        raise CommandError(f"--replica-assignment names {len(assignment)} partitions, --partitions is {partitions}", 2)

    altered = False
    async with on.admin() as admin:
        with ignored(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, if_exists):
            # Both changes, or none.
            for checks in (True, False) if reconfigures and partitions is not None and not dry_run else (dry_run,):
                if reconfigures:
                    await admin.alter_configs(topic_name, added, deleted, validate_only=checks)
                if partitions is not None:
                    await _grow(admin, topic_name, partitions, assignment, checks)
            altered = True
    if output is Format.JSON:
        changes = {"added": added, "deleted": deleted} if reconfigures else {}
        done = {"partitions": partitions, **changes, "altered": altered and not dry_run}
        print_json({"topic": topic_name, **done})
    elif altered:
        if reconfigures:
            print(configs.done(topic_name, dry_run))
        if partitions is not None:
            _tell_grown(dry_run)


def _tell_grown(dry_run: bool) -> None:
    note(
        "WARNING: If partitions are increased for a topic that has a key, the partition logic or ordering of the "
        "messages will be affected"
    )
    print("Adding partitions would succeed." if dry_run else "Adding partitions succeeded!")


async def _grow(admin: "Admin", topic: str, total: int, assignment: Sequence[Sequence[int]], checks: bool) -> None:
    present = len((await admin.describe_topic(topic)).partitions)
    await admin.create_partitions(topic, total, assignment=assignment[present:], validate_only=checks)


@app.command()
@connected
async def delete(
    on: Connection,
    name: TopicArgument = None,
    topic: TopicOption = None,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="A topic that does not exist is no error.")] = False,
    output: FormatOption = Format.TEXT,
) -> None:
    """Delete a topic and everything in it.

    Example: tidelog topics delete events
    """
    topic_name = parse.one_topic(name, topic)

    deleted = False
    async with on.admin(destroys=True) as admin:
        with ignored(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, if_exists):
            await admin.delete_topic(topic_name)
            deleted = True
    if output is Format.JSON:
        print_json({"topic": topic_name, "deleted": deleted})
    elif deleted:
        print(f"Deleted topic {topic_name}.")


@contextmanager
def ignored(code: ErrorCode, ignore: bool) -> Iterator[None]:
    """Ends the block quietly at a TidelogError of this code, if it is to be ignored."""
    try:
        yield
    except TidelogError as error:
        if not ignore or error.code is not code:
            raise


def topic_id_text(topic_id: bytes) -> str:
    """A topic id as Kafka writes it: base64 for URLs, without padding."""
    return base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode()


def _created_json(created: "CreatedTopic") -> dict[str, Any]:
    return {
        "topicId": topic_id_text(created.topic_id),
        "partitions": created.num_partitions,
        "replicationFactor": created.replication_factor,
    }


def _check_positive(option: str, value: int | None) -> None:
    if value is not None and value < 1:
        raise CommandError(f"{option} is {value}; at least 1 is needed", 2)


def _parse_assignment(text: str | None) -> list[list[int]]:
    if text is None:
        return []
    try:
        return [[int(broker) for broker in partition.split(":")] for partition in text.split(",")]
    except ValueError:
        raise CommandError(f"--replica-assignment {text!r} is not broker ids like 1:2:3,2:3:1", 2) from None


def _is_under_replicated(topic: "TopicDescription", p: "PartitionDescription") -> bool:
    return len(p.isr) < len(p.replicas) - len(p.adding_replicas)


def _is_unavailable(topic: "TopicDescription", p: "PartitionDescription") -> bool:
    return p.leader < 0


def _is_under_min_isr(topic: "TopicDescription", p: "PartitionDescription") -> bool:
    return len(p.isr) < p.min_isr or p.leader < 0


def _is_at_min_isr(topic: "TopicDescription", p: "PartitionDescription") -> bool:
    return len(p.isr) == p.min_isr


def _topic_line(topic: "TopicDescription") -> str:
    replicas = max((len(p.replicas) for p in topic.partitions), default=0)
    configs = options_of({c.key: c.value for c in topic.configs})
    return (
        f"Topic: {topic.name}\tTopicId: {topic_id_text(topic.topic_id)}\tPartitionCount: {len(topic.partitions)}"
        f"\tReplicationFactor: {replicas}\tConfigs: {configs}"
    )


def _partition_line(topic: "TopicDescription", p: "PartitionDescription") -> str:
    leader = "none" if p.leader < 0 else str(p.leader)
    return (
        f"\tTopic: {topic.name}\tPartition: {p.partition}\tLeader: {leader}\tReplicas: {_ids(p.replicas)}"
        f"\tIsr: {_ids(p.isr)}\tAdding Replicas: {_ids(p.adding_replicas)}\tRemoving Replicas: {_ids(p.removing_replicas)}"
        "\tElr: N/A\tLastKnownElr: N/A" + "".join(f"\tStatus: {status}" for status in _statuses(p))
    )


def _statuses(p: "PartitionDescription") -> list[str]:
    """States out of the ordinary: offline for fear of a loss (`tidelog brokers release-veto`), led after an unclean election."""
    return [name for name, is_so in (("vetoed", p.vetoed), ("recovering", p.recovering)) if is_so]


def _ids(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))


def _topic_json(topic: "TopicDescription", partitions: Sequence["PartitionDescription"]) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "topicId": topic_id_text(topic.topic_id),
        "partitionCount": len(topic.partitions),
        "replicationFactor": max((len(p.replicas) for p in topic.partitions), default=0),
        "configs": {c.key: c.value for c in topic.configs},
        "partitions": [
            {
                "partition": p.partition,
                "leader": None if p.leader < 0 else p.leader,
                "leaderEpoch": p.leader_epoch,
                "partitionEpoch": p.partition_epoch,
                "replicas": list(p.replicas),
                "isr": list(p.isr),
                "addingReplicas": list(p.adding_replicas),
                "removingReplicas": list(p.removing_replicas),
                "minIsr": p.min_isr,
                "vetoed": p.vetoed,
                "recovering": p.recovering,
            }
            for p in partitions
        ],
    }


app.command("offsets")(get_offsets)
