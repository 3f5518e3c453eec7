"""What the jobs are asked to do: what is refused by name, and what is taken when nothing is said."""

from typing import Any

import pytest

from tidelog.errors import TidelogError
from tidelog.pipeline.jobs.flags import AGGREGATE, INGEST
from tidelog.pipeline.jobs.plans import Field, Measure, aggregate_plan, duration_ms, ingest_plan
from tidelog.pipeline.jobs.program import parser

IN: dict[str, Any] = {"topic": ["events"], "output": "lake"}
WINDOWS: dict[str, Any] = {"topic": ["events"], "to": "counts", "window": "1 minute", "checkpoint": "state"}


def test_an_ingest_that_says_little_takes_everything_in_folders_of_topic_and_day() -> None:
    plan = ingest_plan(IN)
    assert plan.input.options() == {"subscribe": "events", "startingOffsets": "earliest"}
    assert (plan.checkpoint, plan.partition_by, plan.value_format) == ("lake/_checkpoint", ("topic", "date"), "binary")
    assert (plan.run.once, plan.run.trigger_ms, plan.run.master, plan.run.wait_ms) == (False, 10_000, None, 0)


def test_options_of_the_source_reach_it() -> None:
    given = {
        **{"include": "ev.*", "output": "lake/", "starting_offsets": "latest", "max_offsets_per_trigger": "500"},
        "source_option": ["failOnDataLoss=false", "groupIdPrefix=x=y"],
    }
    plan = ingest_plan(given)
    assert plan.output == "lake"
    assert plan.input.options() == {
        **{"subscribePattern": "ev.*", "startingOffsets": "latest", "maxOffsetsPerTrigger": "500"},
        **{"failOnDataLoss": "false", "groupIdPrefix": "x=y"},
    }


def test_a_list_may_be_repeated_or_hold_commas() -> None:
    plan = ingest_plan({"topic": ["a,b", "c", "a"], "output": "x", "partition_by": ["topic, partition", "hour"]})
    assert plan.input.topics == ("a", "b", "c")
    assert plan.partition_by == ("topic", "partition", "hour")


@pytest.mark.parametrize(
    "given, complaint",
    [
        ({"output": "x"}, "--topic or with --include"),
        ({"topic": ["a"], "include": "b", "output": "x"}, "not with both"),
        ({"include": "(", "output": "x"}, "--include '(' is not a regular expression"),
        ({"topic": ["a,,b"], "output": "x"}, "--topic 'a,,b' holds an empty name"),
        ({"topic": ["a"]}, "--output is missing"),
        ({**IN, "output": " "}, "--output is empty"),
        ({**IN, "checkpoint": "lake/"}, "--checkpoint and --output are both lake"),
        ({**IN, "max_offsets_per_trigger": "0"}, "--max-offsets-per-trigger '0' is not a number from 1 on"),
        ({**IN, "max_offsets_per_trigger": "9" * 20}, "--max-offsets-per-trigger"),
        ({**IN, "source_option": ["x"]}, "--source-option 'x' is not KEY=VALUE"),
        (
            {**IN, "source_option": ["Subscribe=b"]},
            "--source-option 'Subscribe=b': Subscribe has an option of its own, --topic",
        ),
        ({**IN, "source_option": ["includeHeaders=false"]}, "--include-headers"),
        ({**IN, "conf": ["=x"]}, "--conf '=x' is not KEY=VALUE"),
        ({**IN, "conf": ["spark.master=local"]}, "spark.master has an option of its own, --master"),
        ({**IN, "once": True, "trigger": "1s"}, "--once ends when everything is read, --trigger goes on"),
        ({**IN, "trigger": "soon"}, "--trigger 'soon' is not a time like"),
        ({**IN, "value_format": "jsn"}, "did you mean 'json'"),
        ({**IN, "value_format": "json"}, "--value-format json needs --schema"),
        ({**IN, "schema": "a INT"}, "--schema is for --value-format json, not for binary"),
        ({**IN, "partition_by": ["dat"]}, "did you mean 'date'"),
        ({**IN, "partition_by": ["topic,topic"]}, "each column once"),
        ({**IN, "metrics_address": "here"}, "--metrics-address: "),
        ({**IN, "wait": "for it"}, "--wait 'for it' is not a time like"),
    ],
)
def test_a_mistake_in_an_ingest_is_refused_by_name(given: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError) as refused:
        ingest_plan(given)
    assert complaint in str(refused.value)


def test_a_topic_that_cannot_exist_is_refused() -> None:
    with pytest.raises(TidelogError, match="topic name"):
        ingest_plan({**IN, "topic": ["no/such"]})


def test_an_aggregate_that_says_little_counts_in_windows_that_do_not_overlap() -> None:
    plan = aggregate_plan(WINDOWS)
    assert (plan.window_ms, plan.slide_ms, plan.watermark_ms) == (60_000, 60_000, 10_000)
    assert (plan.event_time, plan.group_by, plan.measures) == (None, None, (Measure("count"),))


def test_fields_are_named_by_the_way_to_them() -> None:
    given = {**WINDOWS, "group_by": ".user.id", "sum": [".amount,size"], "max": [".a-b c"], "event_time": ".at"}
    plan = aggregate_plan(given)
    assert (plan.group_by, plan.event_time) == (Field(("user", "id")), Field(("at",)))
    assert plan.group_name() == "user_id"
    assert [measure.name for measure in plan.measures] == ["sum_amount", "sum_size", "max_a-b c"]
    assert Field(("user", "id")).json_path == "$['user']['id']"


@pytest.mark.parametrize(
    "given, complaint",
    [
        ({"window": None}, "--window is missing"),
        ({"window": "0s"}, "--window '0s' is no time at all"),
        ({"window": "1 fortnight"}, "--window '1 fortnight' is not a time like"),
        ({"slide": "2m"}, "--slide of 120000 ms is over --window of 60000 ms"),
        ({"slide": "1ms"}, "into 60000 windows of 60000 ms; at most 1000"),
        ({"to": None}, "--to is missing"),
        ({"to": "events"}, "--to events is among the topics that are read"),
        ({"topic": None, "include": "c.*"}, "--to counts is among the topics that are read"),
        ({"checkpoint": None}, "--checkpoint is missing"),
        ({"group_by": "amount"}, "did you mean .amount?"),
        ({"group_by": ".a'b"}, '--group-by ".a\'b" is neither key, topic, partition nor a field'),
        ({"sum": ["sise"]}, "--sum 'sise' is neither size nor a field"),
        ({"sum": [".a.b", ".a_b"]}, "two fields of the name sum_a_b"),
        ({"group_by": ".count"}, "two fields of the name count"),
        ({"delivery": "once"}, "--delivery 'once' is none of exactly-once, at-least-once"),
    ],
)
def test_a_mistake_in_an_aggregate_is_refused_by_name(given: dict[str, Any], complaint: str) -> None:
    asked = {name: value for name, value in {**WINDOWS, **given}.items() if value is not None}
    with pytest.raises(ValueError) as refused:
        aggregate_plan(asked)
    assert complaint in str(refused.value)


@pytest.mark.parametrize(
    "text, ms", [("500ms", 500), ("10 seconds", 10_000), ("5m", 300_000), (" 1 Hour ", 3_600_000), ("2d", 172_800_000)]
)
def test_times_are_read_as_spark_and_people_write_them(text: str, ms: int) -> None:
    assert duration_ms(text) == ms


@pytest.mark.parametrize("text", ["", "5", "s", "-1s", "1.5s", "10 sec ago", "²s"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time like"):
        duration_ms(text)


def test_how_a_job_runs_is_no_part_of_what_its_checkpoint_belongs_to() -> None:
    other = {"once": True, "master": "spark://x:7077", "max_offsets_per_trigger": "7", "starting_offsets": "latest"}
    assert ingest_plan(IN).identity() == ingest_plan({**IN, **other}).identity()
    assert ingest_plan(IN).identity() != ingest_plan({**IN, "value_format": "string"}).identity()
    assert aggregate_plan(WINDOWS).identity() == aggregate_plan({**WINDOWS, **other}).identity()
    for change in (
        {"window": "2m", "slide": "1m"},
        {"slide": "30s"},
        {"group_by": "key"},
        {"sum": ["size"]},
    ):
        assert aggregate_plan(WINDOWS).identity() != aggregate_plan({**WINDOWS, **change}).identity()


@pytest.mark.parametrize("flags", [INGEST, AGGREGATE])
def test_a_program_for_spark_submit_takes_the_same_options(flags: Any) -> None:
    words = ["--topic", "a", "--topic", "b", "--once", "--conf", "x=y", "--master", "local[1]"]
    found = vars(parser("job", flags).parse_args(words))
    assert found == {
        **{"bootstrap_server": None, "topic": ["a", "b"], "once": True, "conf": ["x=y"], "master": "local[1]"}
    }
    help_text = parser("job", flags).format_help()
    assert all(f"--{flag.name}" in help_text for flag in flags)
