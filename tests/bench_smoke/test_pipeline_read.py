"""What B13 is measured with: its records, the reference that yields tuples, and the jars of a system that is not there."""

import asyncio
import os

import pytest

from bench.harness import CannotRun
from bench.maven import fetch_jars
from bench.pipeline_read import BATCH_BYTES, random_batches
from bench.spark_tuples import tuple_reader
from tidelog.client.records import decode_batch
from tidelog.ids import TopicPartition
from tidelog.pipeline.columns import ColumnReader
from tidelog.wire.batch import stamp, validate_produce

TP = TopicPartition("t", 3)


def test_every_batch_is_whole_and_its_values_are_its_own():
    batches = random_batches(100)
    seen = set()
    for _ in range(3):
        batch = next(batches)
        (header,) = validate_produce(batch, batch_bytes_max=BATCH_BYTES).headers
        values = [record.value for record in decode_batch(TP, batch, header)]
        assert {len(value) for value in values} == {100}
        assert len(batch) > 0.9 * BATCH_BYTES
        seen.update(values)
    assert len(seen) == 3 * header.record_count


def test_tuples_are_the_rows_of_the_columns():
    batches, chunk, base = random_batches(1000), b"", 0
    for _ in range(2):
        checked = validate_produce(next(batches), batch_bytes_max=BATCH_BYTES)
        chunk += b"".join(map(bytes, stamp(checked, base, 1)))
        base += checked.headers[0].record_count
    columns, tuples = (
        kind(TP, 5, base - 5, include_headers=False, fail_on_gap=True) for kind in (ColumnReader, tuple_reader())
    )
    rows = [tuple(row.values()) for batch in columns.decode(chunk) for row in batch.to_pylist()]
    assert list(tuples.decode(chunk)) == rows
    assert len(rows) == base - 10
    assert tuples.position == columns.position == base


@pytest.mark.parametrize(
    "script, complaint",
    [
        (
            "echo '[ERROR] goal: Could not find artifact a:b:jar:1 in central (x)'; exit 1",
            r"\(Could not find artifact a:b:jar:1\)",
        ),
        ("exit 3", r"\(mvn ended with 3\)"),
        (None, "there is no mvn here"),
    ],
)
def test_jars_that_cannot_be_had_are_a_reason_not_to_run(tmp_path, monkeypatch, script, complaint):
    commands = tmp_path / "bin"
    commands.mkdir()
    if script is not None:
        (commands / "mvn").write_text(f"#!/bin/sh\n{script}\n")
        (commands / "mvn").chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}{os.pathsep}/bin" if script else str(commands))
    with pytest.raises(CannotRun, match=f"the other's jars.*{complaint}"):
        asyncio.run(fetch_jars(tmp_path / "jars", "the other's", ["a:b:1"], download=True))


def test_jars_are_in_place_when_all_have_come_and_are_not_fetched_again(tmp_path, monkeypatch):
    commands, folder = tmp_path / "bin", tmp_path / "other"
    commands.mkdir()
    fetch = (
        'for word; do case $word in -DoutputDirectory=*) to=${word#*=};; esac; done; mkdir "$to"; echo > "$to/b.jar"'
    )
    (commands / "mvn").write_text(f"#!/bin/sh\n{fetch}\n")
    (commands / "mvn").chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}{os.pathsep}/bin")
    jars = asyncio.run(fetch_jars(folder, "the other's", ["a:b:1"], download=True))
    assert [jar.name for jar in jars.iterdir()] == ["b.jar"]
    assert "<artifactId>b</artifactId><version>1</version>" in (folder / "pom.xml").read_text()
    (commands / "mvn").unlink()
    assert asyncio.run(fetch_jars(folder, "the other's", ["a:b:1"], download=True)) == jars
