"""`tidelog elect-leaders` and `tidelog brokers release-veto`: kafka-leader-election's flags and sentences."""

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidelog.cli import completion
from tidelog.cli.connection import Connection, connected
from tidelog.cli.errors import CommandError
from tidelog.cli.show import Format, FormatOption, print_json
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition

if TYPE_CHECKING:
    from tidelog.wire.messages import ElectionResult


class ElectionType(StrEnum):
    PREFERRED = "preferred"
    UNCLEAN = "unclean"


TopicOption = Annotated[
    str | None, typer.Option("--topic", help="One partition: its topic.", autocompletion=completion.topics)
]
PartitionOption = Annotated[int | None, typer.Option("--partition", min=0, help="One partition: its number.")]
FileOption = Annotated[
    Path | None,
    typer.Option(
        "--path-to-json-file",
        metavar="FILE",
        help='Several partitions: {"partitions": [{"topic": "events", "partition": 0}]}.',
    ),
]
AllOption = Annotated[bool, typer.Option("--all-topic-partitions", help="Every partition that it can change.")]

app = typer.Typer(add_completion=False)


@app.command("elect-leaders")
@connected
async def elect_leaders(
    on: Connection,
    election_type: Annotated[
        ElectionType,
        typer.Option(
            "--election-type",
            help="preferred: the first replica leads, if it is in sync. unclean: where no replica in sync is alive, the live "
            "replica with the largest log leads, and what it lacks is lost.",
        ),
    ],
    topic: TopicOption = None,
    partition: PartitionOption = None,
    path_to_json_file: FileOption = None,
    all_topic_partitions: AllOption = False,
    broker: Annotated[
        int | None,
        typer.Option("--broker", min=0, help="unclean: only this broker may lead.", autocompletion=completion.brokers),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="unclean: show which replica would lead and what would be lost, change nothing."
        ),
    ] = False,
    output: FormatOption = Format.TEXT,
) -> None:
    """Elect the leaders of one partition, several, or all. Exits 1 if a partition could not be elected.

    Example: tidelog elect-leaders --election-type preferred --all-topic-partitions
    """
    chosen = _chosen(topic, partition, path_to_json_file, all_topic_partitions)
    unclean = election_type is ElectionType.UNCLEAN
    if not unclean and (broker is not None or dry_run):
        raise CommandError("--broker and --dry-run are only allowed with --election-type unclean", 2)
    candidates = () if broker is None else (broker,)
    async with on.admin(destroys=unclean and not dry_run) as admin:
        if dry_run:
            results = await admin.elect_leaders(chosen, unclean=True, candidates=candidates, validate_only=True)
        else:
            results = await admin.elect_leaders(chosen, unclean=unclean, candidates=candidates)
    kind = election_type.value.upper()
    if dry_run:
        _report(
            results,
            output,
            "dry-run",
            done="Would be elected without a clean leader:",
            valid="Valid replica already elected for partitions",
            failed="No leader can be elected for partition:",
        )
        return
    _report(
        results,
        output,
        election_type.value,
        done=f"Successfully completed leader election ({kind}) for partitions",
        valid="Valid replica already elected for partitions",
        failed=f"Error completing leader election ({kind}) for partition:",
    )


@connected
async def release_veto(
    on: Connection,
    topic: TopicOption = None,
    partition: PartitionOption = None,
    path_to_json_file: FileOption = None,
    all_topic_partitions: AllOption = False,
    output: FormatOption = Format.TEXT,
) -> None:
    """Let the last in-sync replica lead although it may have lost records (a power loss, a wiped disk).

    `tidelog topics describe` marks such partitions as vetoed. They also come back by themselves when another member of the
    ISR returns, without a loss: prefer that where you can.

    Example: tidelog brokers release-veto --topic events --partition 0
    """
    chosen = _chosen(topic, partition, path_to_json_file, all_topic_partitions)
    async with on.admin(destroys=True) as admin:
        results = await admin.release_veto(chosen)
    _report(
        results,
        output,
        "release-veto",
        done="Released the veto for partitions",
        valid="No veto holds partitions",
        failed="Error releasing the veto for partition:",
    )


def _chosen(
    topic: str | None, partition: int | None, file: Path | None, everything: bool
) -> list[TopicPartition] | None:
    """None: all."""
    if sum((topic is not None, file is not None, everything)) != 1:
        raise CommandError(
            "one and only one of these is required: --topic, --path-to-json-file, --all-topic-partitions", 2
        )
    if topic is None:
        if partition is not None:
            raise CommandError("--partition is only allowed with --topic", 2)
        return None if file is None else _read(file)
    if partition is None:
        raise CommandError("--topic needs --partition", 2)
    return [TopicPartition(topic, partition)]


def _read(file: Path) -> list[TopicPartition]:
    try:
        found = [
            TopicPartition(each["topic"], each["partition"])
            for each in json.loads(file.read_text("utf-8"))["partitions"]
        ]
        if not all(type(each.topic) is str and type(each.partition) is int and each.partition >= 0 for each in found):
            raise ValueError
    except (ValueError, KeyError, TypeError):
        raise CommandError(f'{file} is not {{"partitions": [{{"topic": "events", "partition": 0}}]}}', 2) from None
    if not found:
        raise CommandError(f"{file} names no partition", 2)
    if len(set(found)) != len(found):
        raise CommandError(f"{file} names a partition twice", 2)
    return found


def _report(results: list["ElectionResult"], output: Format, kind: str, *, done: str, valid: str, failed: str) -> None:
    elected = [each for each in results if each.error_code is ErrorCode.NONE]
    needless = [each for each in results if each.error_code is ErrorCode.ELECTION_NOT_NEEDED]
    refused = [each for each in results if each not in elected and each not in needless]
    if output is Format.JSON:
        print_json(
            {
                "electionType": kind,
                "elected": [_json(each) for each in elected],
                "alreadyValid": [_json(each) for each in needless],
                "failed": [
                    {**_json(each), "error": each.error_code.name, "message": each.error_message} for each in refused
                ],
            }
        )
    else:
        for sentence, named in ((done, elected), (valid, needless)):
            if named:
                print(sentence, ", ".join(f"{each.topic}-{each.partition}" for each in named))
        for each in elected:
            if each.ends:
                print(_choice(each))
        for each in refused:
            print(f"{failed} {each.topic}-{each.partition}: {each.error_code.name}: {each.error_message}")
        if not results:
            print("No partition needs it.")
    if refused:
        raise CommandError(f"{len(refused)} replica(s) could not be elected")


def _lost(result: "ElectionResult") -> int:
    """Records that the chosen replica lacks, as far as live replicas tell."""
    ends = {each.broker_id: each.end_offset for each in result.ends}
    return max(ends.values()) - ends.get(result.leader, 0)


def _choice(result: "ElectionResult") -> str:
    ends = ", ".join(f"broker {e.broker_id}: {e.end_offset} (epoch {e.last_epoch})" for e in result.ends)
    return (
        f"{result.topic}-{result.partition}: leader {result.leader}, {_lost(result)} records of live replicas lost; "
        f"log ends: {ends}"
    )


def _json(result: "ElectionResult") -> dict[str, Any]:
    named: dict[str, Any] = {"topic": result.topic, "partition": result.partition}
    if result.error_code is ErrorCode.NONE and result.ends:
        named["leader"] = result.leader
        named["recordsLost"] = _lost(result)
        named["logEnds"] = [
            {"broker": e.broker_id, "lastEpoch": e.last_epoch, "endOffset": e.end_offset} for e in result.ends
        ]
    return named
