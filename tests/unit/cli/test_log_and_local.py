"""`tidelog log dump` and `tidelog local`: the parts that need no cluster to be judged."""

import json
import os
import random
from itertools import count
from pathlib import Path
from unittest.mock import Mock

import pytest

from helpers.requirements import requirement
from tidelog.client.records import Record, encode_batch
from tidelog.cluster import plan as planning
from tidelog.cluster.breaking import breaking
from tidelog.cluster.local import LocalCluster, local_name
from tidelog.cluster.process_life import life_of
from tidelog.wire.batch import stamp, validate_produce
from unit.cli.conftest import Tidelog


def segment(path: Path, batches: int) -> Path:
    data = b""
    for i in range(batches):
        batch = encode_batch([Record(b"k", b"v%d" % n, (), 1000 + n) for n in range(3)])
        data += b"".join(bytes(p) for p in stamp(validate_produce(batch, batch_bytes_max=10**6), 3 * i, 7))
    path.write_bytes(data)
    return path


def test_log_dump_prints_every_header(tidelog: Tidelog, tmp_path: Path) -> None:
    file = segment(tmp_path / "00000000000000000000.log", 3)
    shown = tidelog("log", "dump", str(file))
    assert shown.exit_code == 0
    assert shown.text.splitlines()[0] == f"Dumping {file}"
    assert shown.text.splitlines()[2].startswith("baseOffset: 3 lastOffset: 5 count: 3 baseSequence: -1 producerId: -1")
    assert "partitionLeaderEpoch: 7" in shown.text
    rows = [json.loads(line) for line in tidelog("log", "dump", str(file), "--format", "json").text.splitlines()]
    assert [r["baseOffset"] for r in rows] == [0, 3, 6]
    assert all(r["valid"] for r in rows)


def test_log_dump_prints_records(tidelog: Tidelog, tmp_path: Path) -> None:
    first, second = segment(tmp_path / "00000000000000000000.log", 1), tmp_path / "00000000000000000003.log"
    batch = encode_batch([Record(None, b"a\nb\xff", (("h", b"1"),), 5), Record(b"gone", None, (), 6)])
    second.write_bytes(b"".join(bytes(p) for p in stamp(validate_produce(batch, batch_bytes_max=10**6), 3, 7)))
    shown = tidelog("log", "dump", "--files", f"{first},{second}", "--print-data-log").text.splitlines()
    assert shown[2:5] == [
        f"| offset: {n} CreateTime: {1000 + n} keySize: 1 valueSize: 2 sequence: -1 headerKeys: [] key: k payload: v{n}"
        for n in range(3)
    ]
    assert shown[7:] == [
        "| offset: 3 CreateTime: 5 keySize: -1 valueSize: 4 sequence: -1 headerKeys: [h] payload: a\\nb\\xff",
        "| offset: 4 CreateTime: 6 keySize: 4 valueSize: -1 sequence: -1 headerKeys: [] key: gone",
    ]
    (row,) = map(
        json.loads, tidelog("log", "dump", str(second), "--print-data-log", "--format", "json").text.splitlines()
    )
    assert [(r["offset"], r.get("valueBase64", r.get("value"))) for r in row["records"]] == [(3, "YQpi/w=="), (4, None)]
    assert "records" not in json.loads(tidelog("log", "dump", str(second), "--format", "json").text)


def test_log_dump_names_where_the_file_stops_making_sense(tidelog: Tidelog, tmp_path: Path) -> None:
    file = segment(tmp_path / "00000000000000000000.log", 3)
    file.write_bytes(file.read_bytes()[:-5])
    shown = tidelog("log", "dump", str(file))
    assert shown.exit_code == 1
    assert shown.text.splitlines()[-1].endswith("isvalid: false")
    assert "damaged: batch_length" in shown.error
    file.write_bytes(random.Random(5).randbytes(5_000))
    noise = tidelog("log", "dump", str(file))
    assert noise.exit_code == 1 and "damaged: " in noise.error


@pytest.mark.parametrize(
    ("name", "said"),
    [("nope.log", "no such file"), ("/dev/null", "no regular file"), (".", "a directory, name a *.log file in it")],
)
def test_log_dump_bad_input(tidelog: Tidelog, name: str, said: str) -> None:
    result = tidelog("log", "dump", name)
    assert result.exit_code == 2
    assert said in result.error


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("status",), 1, "there is no cluster in"),
        (("down",), 1, "`tidelog local up` makes one"),
        (("kill", "broker-1"), 1, "there is no cluster in"),
        (("up", "--brokers", "0,x"), 2, "not a list of ids"),
        (("up", "--brokers", "1,1"), 2, "each id once"),
        (("up", "--brokers", "-1"), 2, "none below 0"),
        (("up", "--controllers", "0"), 2, "--controllers"),
        (("kill",), 2, "PROCESS"),
    ],
)
def test_local_bad_input(tidelog: Tidelog, args: tuple[str, ...], code: int, said: str) -> None:
    result = tidelog("local", *args)
    assert result.exit_code == code
    assert said in result.error


def test_log_dump_refuses_a_file_that_is_no_segment(tidelog: Tidelog, tmp_path: Path) -> None:
    (tmp_path / "passwd").write_text("root:x:0:0:root:/root:/bin/bash\n" * 50)
    good = segment(tmp_path / "00000000000000000000.log", 1)
    refused = tidelog("log", "dump", "--files", f"{good},passwd")
    assert (refused.exit_code, refused.out) == (2, b"")
    assert refused.error.startswith("tidelog: passwd is no segment file")
    copied = good.rename(tmp_path / "copy")
    copied.write_bytes(copied.read_bytes()[:-1])
    assert "damaged: " in tidelog("log", "dump", "copy").error


def test_what_is_being_broken_is_not_taken_down(tidelog: Tidelog, tmp_path: Path) -> None:
    base = tmp_path / "data/local"
    base.mkdir(parents=True)
    (base / "cluster.json").write_text(planning.to_json(planning.make_plan((0,), 1, 1, count(20_000))))
    with breaking(local_name(base)):
        refused = tidelog("local", "down")
    assert (refused.exit_code, refused.out) == (1, b"")
    assert f"another program is breaking {local_name(base)}: try again when it has ended" in refused.error
    assert tidelog("local", "down").text.endswith("is down.\n")


@pytest.fixture
def local(tmp_path: Path) -> LocalCluster:
    """The description of a cluster of which broker 0 has never run and broker 1 is this program."""
    base = tmp_path / "data/local"
    (base / "broker-1").mkdir(parents=True)
    (base / "cluster.json").write_text(planning.to_json(planning.make_plan((0, 1), 1, 1, count(20_000))))
    (base / "broker-1/broker-1.pid").write_text(life_of(os.getpid()))
    return LocalCluster(base)


def test_status_says_why_a_process_is_stopped(tidelog: Tidelog, local: LocalCluster) -> None:
    for name, end, last in (
        ("controller-1", "SIGKILL", json.dumps({"level": "info", "event": "elected " * 30})),
        ("zookeeper-1", "", "no more memory"),
    ):
        (local.base / name).mkdir()
        (local.base / name / f"{name}.log").write_text(f"first\n{last}\n")
        if end:
            (local.base / name / f"{name}.end").write_text(f"{end}\n")
    shown = tidelog("local", "status").text.splitlines()
    assert "zookeeper-1: ended; its last line was: no more memory" in shown
    assert "broker-0: it has not run yet" in shown
    assert any(line.startswith("controller-1: ended by SIGKILL; its last line was: elected elected") for line in shown)
    assert any(line.split()[:2] == ["broker-1", "running"] and "EXTERNAL=" in line for line in shown)
    assert max(len(line) for line in shown[:-1]) <= 100
    rows = {row["name"]: row["whyStopped"] for row in json.loads(tidelog("local", "status", "--format", "json").text)}
    assert rows == {"broker-0": None, "broker-1": None, "controller-1": "SIGKILL", "zookeeper-1": None}


def test_local_says_what_was_done(tidelog: Tidelog, local: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    for done in ("kill", "start", "stop", "pause", "resume"):
        monkeypatch.setattr(LocalCluster, done, lambda *_: None)
    said = [tidelog("local", each, "broker-1").text for each in ("kill", "start", "stop", "pause", "resume")]
    does = ("was killed", "runs", "has ended", "is paused", "runs again")
    assert said == [f"broker-1 {each}.\n" for each in does]


@requirement("Brokers are added to a running cluster by a command")
def test_up_adds_brokers_and_leaves_those_that_run_alone(
    tidelog: Tidelog, local: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    monkeypatch.setattr(LocalCluster, "start", lambda _, name: started.append(name))
    for outside in ("Guard", "wait_ready"):
        monkeypatch.setattr(f"tidelog.cluster.local.{outside}", Mock())
    assert tidelog("local", "up", "--brokers", "0,1,3,4").exit_code == 0
    assert started == ["zookeeper-1", "controller-1", "broker-0", "broker-3", "broker-4"], "broker-1 runs already"
    grown = LocalCluster(local.base).plan
    assert all(grown[process.name] == process for process in local.plan.processes)
