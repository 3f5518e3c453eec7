"""`tidelog produce` and `tidelog consume`: any bytes, and the truth about what became of them."""

import json
from pathlib import Path

import pytest

from helpers.driven_brokers import Driven
from helpers.requirements import requirement
from tidelog.cli.lines import LineSplitter, TooLong
from tidelog.errors import ErrorCode
from tidelog.wire.batch import read_header
from unit.cli.conftest import SHARED, Tidelog

ANY_BYTES = [b"", b"plain", b"\r", b"with\ttab", bytes(b for b in range(256) if b != 10), b"\x00", "æøå".encode()]


def test_lines_of_any_bytes_make_the_round_trip(tidelog: Tidelog, cluster: Driven) -> None:
    cluster.create("t")
    sent = tidelog("produce", "t", stdin=b"\n".join(ANY_BYTES))
    assert sent.exit_code == 0
    assert sent.err == "7 records acknowledged.\n"
    assert cluster.values("t") == ANY_BYTES
    got = tidelog("consume", "t", "--from-beginning", "--max-messages", "7")
    assert got.exit_code == 0
    assert got.out == b"\n".join([*ANY_BYTES, b""])
    assert got.err == "Processed a total of 7 messages\n"


def test_a_file_with_keys_headers_and_compression(tidelog: Tidelog, cluster: Driven, tmp_path: Path) -> None:
    cluster.create("t")
    (tmp_path / "in.txt").write_bytes(b"h1:a,h2:b|k1:v1\n|k2:v:2\n")
    sent = tidelog(
        *("produce", "--topic", "t", "--file", "in.txt", "--key-separator", ":", "--headers-separator", "|"),
        *("--header", "all=x", "--compression", "zstd", "--acks", "1", "--format", "json"),
    )
    assert json.loads(sent.text) == {"read": 2, "acked": 2, "refused": 0, "failed": 0, "outcomeUnknown": 0}
    got = tidelog("consume", "t", "--from-beginning", "--max-messages", "2", "--format", "json")
    assert (got.exit_code, got.err) == (0, "Processed a total of 2 messages\n")
    rows = [json.loads(line) for line in got.text.splitlines()]
    assert [(r["key"], r["value"], r["offset"]) for r in rows] == [("k1", "v1", 0), ("k2", "v:2", 1)]
    assert [h["name"] for h in rows[0]["headers"]] == ["all", "h1", "h2"]
    assert cluster.of("Produce")[0].request.acks == 1
    text = tidelog(
        *("consume", "t", "--from-beginning", "--max-messages", "1", "--formatter-property", "print.key=true"),
        *("--formatter-property", "print.offset=true", "--formatter-property", "key.separator= | "),
    )
    assert text.text == "Offset:0 | k1 | v1\n"


@requirement("A producer batch that is sent again is stored once")
def test_idempotence_is_a_client_setting(tidelog: Tidelog, cluster: Driven) -> None:
    cluster.create("t")
    for option in ((), ("--command-property", "enable.idempotence=false"), ("--acks", "1")):
        assert tidelog("produce", "t", *option, stdin=b"v\n").exit_code == 0
    assert [read_header(batch).producer_id for batch in cluster.batches("t")] == [0, -1, -1]
    refused = tidelog("produce", "t", "--acks", "1", "--command-property", "enable.idempotence=true", stdin=b"v\n")
    assert refused.exit_code == 2
    assert refused.err.count("\n") == 1 and "enable_idempotence needs acks all" in refused.err
    assert len(cluster.batches("t")) == 3


def test_json_marks_bytes_that_are_no_text(tidelog: Tidelog, cluster: Driven) -> None:
    cluster.create("t")
    tidelog("produce", "t", stdin=b"\xff\xfe")
    (row,) = tidelog("consume", "t", "--from-beginning", "--max-messages", "1", "--format", "json").text.splitlines()
    assert json.loads(row)["valueBase64"] == "//4="
    assert json.loads(row)["key"] is None


def test_a_line_over_the_limit_is_refused_and_the_next_one_goes_on(tidelog: Tidelog, cluster: Driven) -> None:
    cluster.create("t")
    sent = tidelog(
        "produce", "t", "--record-bytes-max", "1000", stdin=b"a\n" + b"x" * 2000 + b"\n" + b"y" * 990 + b"\nb\n"
    )
    assert sent.exit_code == 1
    assert "line 2: 2000 bytes; record_bytes_max is 1000" in sent.err
    assert "line 3: a record of " in sent.err
    assert "2 records acknowledged, 2 refused." in sent.err
    assert cluster.values("t") == [b"a", b"b"]


def test_what_the_brokers_refuse_is_told_with_its_line(tidelog: Tidelog, cluster: Driven) -> None:
    cluster.create("t")
    cluster.refuse_produce(ErrorCode.INVALID_RECORD)
    sent = tidelog("produce", "t", stdin=b"a\nb\n")
    assert sent.exit_code == 1
    assert "tidelog: line 1: t-0: scripted (try 1); it may have been written" not in sent.err
    assert "tidelog: line 2: t-0: scripted (try 1); it was not written" in sent.err
    assert "0 records acknowledged, 2 failed (0 of them may have been written)." in sent.err


def test_consume_from_places(tidelog: Tidelog, cluster: Driven) -> None:
    cluster.create("t", partitions=2)
    tidelog("produce", "t", "--partition", "1", stdin=b"a\nb\nc\n")
    got = tidelog("consume", "t", "--partition", "1", "--offset", "1", "--max-messages", "2")
    assert (got.text, got.err) == ("b\nc\n", "Processed a total of 2 messages\n")
    assert tidelog("consume", "t", "--timeout-ms", "100").text == ""  # latest is the default
    assert tidelog("consume", "t", "--offset", "earliest", "--max-messages", "3").text == "a\nb\nc\n"
    assert tidelog("consume", "t", "--partition", "0", "--from-beginning", "--timeout-ms", "100").text == ""


def test_a_damaged_batch_is_named_and_can_be_skipped(tidelog: Tidelog, cluster: Driven) -> None:
    cluster.create("t")
    for line in (b"a\n", b"b\n", b"c\n"):
        tidelog("produce", "t", stdin=line)
    batch = cluster.batches("t")[1]
    cluster.damage(batch, batch[:-1] + b"!")
    got = tidelog("consume", "t", "--from-beginning")
    assert (got.exit_code, got.text) == (1, "a\n")
    assert "t-0: bad batch at offset 1: crc" in got.err
    got = tidelog("consume", "t", "--from-beginning", "--max-messages", "2", "--skip-damaged")
    assert (got.exit_code, got.text) == (1, "a\nc\n")
    assert "Processed a total of 2 messages" in got.err


@SHARED
@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("produce",), 2, "name one topic"),
        (("produce", "nope", "--delivery-timeout-ms", "200"), 1, "topic 'nope' does not exist; create it"),
        (("produce", "a/b"), 2, "topic name 'a/b'"),
        (("produce", "t", "--file", "nope.txt"), 2, "nope.txt: No such file"),
        (("produce", "t", "--file", "/"), 2, "Is a directory"),
        (("produce", "t", "--acks", "7"), 2, "acks '7' is not 0, 1 or all"),
        (("produce", "t", "--compression", "rar"), 2, "known are none, gzip, snappy, lz4, zstd"),
        (("produce", "t", "--key-separator", ""), 2, "--key-separator cannot be empty"),
        (("produce", "t", "--header", "x"), 2, "'x' is not KEY=VALUE"),
        (("produce", "t", "--batch-size", "0"), 2, "--batch-size"),
    ],
)
def test_produce_bad_input(tidelog: Tidelog, cluster: Driven, args: tuple[str, ...], code: int, said: str) -> None:
    result = tidelog(*args, stdin=b"x\n")
    assert result.exit_code == code
    assert said in result.error
    assert cluster.values("t") == []


@SHARED
@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("consume", "nope", "--command-property", "request.timeout.ms=200"), 1, "topic 'nope' does not exist"),
        (("consume", "a/b"), 2, "topic name 'a/b'"),
        (("consume", "t", "--partition", "9"), 1, "partition 9 does not exist"),
        (("consume", "t", "--offset", "5"), 2, "--offset with a number needs --partition"),
        (("consume", "t", "--partition", "0", "--offset", "-"), 2, "is not earliest, latest, a number"),
        (("consume", "t", "--offset", "--5"), 2, "is not earliest, latest, a number"),
        (("consume", "t", "--group", "g", "--exit-at-end"), 2, "--exit-at-end excludes --group"),
        (("consume", "t", "--partition", "0", "--offset", "٣"), 2, "is not earliest, latest, a number"),
        (("consume", "t", "--partition", "0", "--offset", str(2**63)), 2, "over 2^63"),
        (("consume", "t", "--partition", "0", "--offset", "77"), 1, "offset 77 is not in the log"),
        (("consume", "t", "--offset", "@"), 2, "--offset '@' is not Unix milliseconds, a date like"),
        (("consume", "t", "--offset", "@-1"), 2, "--offset '@-1' is not Unix milliseconds, a date like"),
        (("consume", "t", "--offset", "yesterday"), 2, "a number or a time like @1h"),
        (("consume", "t", "--offset", "@" + str(2**63)), 2, "over 2^63"),
        (("consume", "t", "--offset", "latest", "--from-beginning"), 2, "exclude each other"),
        (("consume", "t", "--max-messages", "0"), 2, "--max-messages"),
        (("consume", "t", "--formatter-property", "print.all=true"), 2, "'print.all' is not known"),
        (("consume", "t", "--property", "print.key=yes"), 2, "neither true nor false"),
    ],
)
def test_consume_bad_input(tidelog: Tidelog, args: tuple[str, ...], code: int, said: str) -> None:
    result = tidelog(*args)
    assert result.exit_code == code
    (line,) = [line for line in result.err.splitlines() if not line.startswith("Processed")]
    assert said in line
    assert result.out == b""


def test_a_line_without_its_separator_is_refused(tidelog: Tidelog, cluster: Driven) -> None:
    cluster.create("t")
    sent = tidelog("produce", "t", "--key-separator", "\\t", stdin=b"k\tv\nplain\n")
    assert sent.exit_code == 1
    assert "line 2: no key separator" in sent.err
    assert cluster.values("t") == [b"v"]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_lines_are_the_same_however_the_bytes_arrive(size: int) -> None:
    data = b"\n".join(ANY_BYTES) + b"\n" + b"z" * 500 + b"\nlast"
    splitter = LineSplitter(300)
    found: list[bytes | TooLong] = []
    for at in range(0, len(data), size):
        found.extend(splitter.feed(data[at : at + size]))
    found.extend(splitter.end())
    assert found[:7] == ANY_BYTES
    assert isinstance(found[7], TooLong)
    assert found[7].size_bytes == 500
    assert found[8:] == [b"last"]


def test_a_line_is_read_by_the_properties_of_kafkas_tool(tidelog: Tidelog, cluster: Driven) -> None:
    cluster.create("t")
    how = ("parse.key=true", "key.separator=:", "parse.headers=true", "null.marker=NULL")
    lines = b"a:1,b:NULL\tk:v\n\tk:NULL\n\tNULL:v\n"
    sent = tidelog("produce", "t", *(word for each in how for word in ("--property", each)), stdin=lines)
    assert sent.exit_code == 0, sent.err
    got = tidelog("consume", "t", "--from-beginning", "--exit-at-end", "--format", "json")
    records = [json.loads(line) for line in got.text.splitlines()]
    assert [(r["key"], r["value"]) for r in records] == [("k", "v"), ("k", None), (None, "v")]
    assert records[0]["headers"] == [{"name": "a", "value": "1"}, {"name": "b", "value": None}]


def test_a_line_without_a_key_is_refused_or_sent_without_one(tidelog: Tidelog, cluster: Driven) -> None:
    cluster.create("t")
    keyed = ("--property", "parse.key=true")
    refused = tidelog("produce", "t", *keyed, stdin=b"plain\n")
    assert (refused.exit_code, refused.err.splitlines()[0]) == (1, "tidelog: line 1: no key separator '\\t'")
    assert tidelog("produce", "t", *keyed, "--property", "ignore.error=true", stdin=b"plain\n").exit_code == 0
    assert cluster.values("t") == [b"plain"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("parse.keys=true", "--property 'parse.keys' is not known; did you mean 'parse.key'?"),
        ("parse.key=yes", "--property parse.key=yes is neither true nor false"),
        ("null.marker=", "--property null.marker cannot be empty"),
        ("parse.key", "--property 'parse.key' is not KEY=VALUE"),
    ],
)
def test_a_property_that_is_no_property_is_refused(tidelog: Tidelog, given: str, said: str) -> None:
    result = tidelog("produce", "t", "--property", given)
    assert (result.exit_code, result.error) == (2, f"tidelog: {said}")


def test_consume_ends_where_the_log_ended(tidelog: Tidelog, cluster: Driven) -> None:
    cluster.create("t", partitions=3)
    assert tidelog("consume", "t", "--from-beginning", "--exit-at-end").err == "Processed a total of 0 messages\n"
    for partition in range(3):
        tidelog("produce", "t", "--partition", str(partition), stdin=b"1\n2\n3\n")
    assert sorted(tidelog("consume", "t", "--offset", "-2", "--exit-at-end").text.split()) == [
        "2",
        "2",
        "2",
        "3",
        "3",
        "3",
    ]
    assert len(tidelog("consume", "t", "--offset", "-9", "--exit-at-end").text.split()) == 9
    assert tidelog("consume", "t", "--exit-at-end").text == ""


def test_an_empty_line_is_an_empty_value_and_help_says_so(tidelog: Tidelog, cluster: Driven) -> None:
    cluster.create("t")
    assert tidelog("produce", "t", stdin=b"a\n\n").exit_code == 0
    reading = ("consume", "t", "--from-beginning", "--max-messages", "2")
    assert tidelog(*reading).out == b"a\n\n"
    assert "An empty line is a record with an empty value." in tidelog("produce", "--help").text
    assert "keyBase64 and valueBase64" in " ".join(tidelog("consume", "--help").text.split())
