"""What the handlers do with records, and what they promise when they say that something is safe."""

import asyncio
import io
import json
import threading
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from helpers.brokers import Brokers, brokers
from helpers.log_events import captured_logs
from tidelog.agent.files import FileHandler
from tidelog.agent.forward import ForwardHandler
from tidelog.agent.functions import FunctionHandler, load_function
from tidelog.agent.watching import CountHandler, LogHandler
from tidelog.client.errors import DeliveryError
from tidelog.client.producer import Producer
from tidelog.client.records import ConsumerRecord, decode_batch
from tidelog.config import ConfigError
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import TopicPartition
from tidelog.runtime.os_disk import OsDisk
from tidelog.testing.disk import Crash, PowerCut, SimDisk
from tidelog.wire.batch import read_header
from unit.agent.scene import T0, T1, record, records

FOLDER = "/out"


async def test_count_counts_by_topic(caplog: pytest.LogCaptureFixture) -> None:
    counting = CountHandler()
    await counting.handle(records(T0, 0, 1))
    await counting.handle(records(T1, 5))
    assert counting.counts == {"t": 3}


async def test_log_writes_a_line_for_each_record_and_cuts_it() -> None:
    with captured_logs() as lines:
        await LogHandler().handle([record(T0, 3, b"v" * 10_000, b"\xff"), record(T0, 4, b"last")])
    assert [(each["event"], each["offset"]) for each in lines] == [("record", 3), ("record", 4)]
    assert "v" * 200 in lines[0]["value"] and "v" * 201 not in lines[0]["value"]
    assert lines[1]["value"] == "last"


# -- forward ---------------------------------------------------------------------------------------------------------------------


def forwarding(cluster: Brokers, **options: object) -> ForwardHandler:
    producer = Producer(cluster.bootstrap, ports=cluster.ports, **options)  # type: ignore[arg-type]
    return ForwardHandler(producer, "copy")


async def test_forward_keeps_all_of_a_record_and_returns_when_it_is_acknowledged() -> None:
    cluster = await brokers()
    await cluster.create("copy")
    handler = forwarding(cluster)
    await handler.start()
    original = ConsumerRecord("t", 0, 9, 1234, 0, b"k", None, (("h", b"1"),), 0)
    await handler.handle([original, record(T0, 10)])
    stored = [
        r
        for batch in cluster.batches("copy")
        for r in decode_batch(TopicPartition("copy", 0), batch, read_header(batch))
    ]
    assert [(r.key, r.value, tuple(r.headers), r.timestamp_ms) for r in stored] == [
        (b"k", None, (("h", b"1"),), 1234),
        (None, b"10", (), 1010),
    ]
    await handler.close()


async def test_forward_fails_when_one_record_is_not_acknowledged() -> None:
    cluster = await brokers()
    await cluster.create("copy")
    cluster.refuse_produce(ErrorCode.INVALID_RECORD)
    handler = forwarding(cluster)
    await handler.start()
    with pytest.raises(DeliveryError):
        await handler.handle(records(T0, 0))
    await handler.handle(records(T0, 0))
    assert cluster.values("copy") == [b"0"]
    await handler.close()


# -- file ------------------------------------------------------------------------------------------------------------------------


def file_handler(
    disk: SimDisk | OsDisk, folder: str = FOLDER, kind: str = "jsonl", bytes_max: int = 10_000
) -> FileHandler:
    return FileHandler(disk, folder, kind, bytes_max, writer="agent-1")


def names(disk: SimDisk) -> list[str]:
    return [entry.name for entry in disk.list_dir(FOLDER)]


def offsets_in(disk: SimDisk, name: str) -> list[int]:
    return [json.loads(line)["offset"] for line in disk.read(f"{FOLDER}/{name}").splitlines()]


async def test_file_writes_json_lines_named_by_what_is_in_them() -> None:
    disk = SimDisk()
    handler = file_handler(disk)
    await handler.start()
    await handler.handle(
        [ConsumerRecord("t", 0, 3, 77, 0, b"k", "ü\n".encode(), (("h", None),), 0), record(T0, 4, b"\xff")]
    )
    await handler.handle(records(T1, 8))
    assert names(disk) == []
    await handler.flush()
    assert names(disk) == ["t-0-3-5.jsonl", "t-1-8-9.jsonl"]
    first, second = map(json.loads, disk.read(f"{FOLDER}/t-0-3-5.jsonl").splitlines())
    assert first == {
        **{"topic": "t", "partition": 0, "offset": 3, "timestamp_ms": 77},
        **{"key": "k", "value": "ü\n", "headers": [["h", None]]},
    }
    assert second["value"] == {"base64": "/w=="}
    await handler.flush()
    assert len(names(disk)) == 2


async def test_file_replaces_no_other_records_of_the_same_offsets() -> None:
    disk = SimDisk()
    handler = file_handler(disk)
    await handler.start()
    for value in (b"old", b"new", b"newest", b"new"):
        await handler.handle([record(T0, 3, value)])
        await handler.flush()
    assert names(disk) == ["t-0-3-4.1.jsonl", "t-0-3-4.2.jsonl", "t-0-3-4.jsonl"]
    values = [json.loads(disk.read(f"{FOLDER}/{name}"))["value"] for name in names(disk)]
    assert values == ["new", "newest", "old"]


async def test_file_writes_parquet(tmp_path: Path) -> None:
    handler = file_handler(OsDisk(), str(tmp_path / "out"), "parquet")
    await handler.start()
    await handler.handle([ConsumerRecord("t", 0, 3, 77, 0, None, b"\xff", (("h", b"1"),), 0), record(T0, 4)])
    await handler.flush()

    (path,) = (tmp_path / "out").iterdir()
    assert path.name == "t-0-3-5.parquet"
    rows = pq.read_table(io.BytesIO(path.read_bytes())).to_pylist()
    assert [(r["offset"], r["key"], r["value"]) for r in rows] == [(3, None, b"\xff"), (4, None, b"4")]
    assert rows[0]["headers"] == [{"key": "h", "value": b"1"}]
    assert rows[0]["timestamp"].timestamp() == 0.077


async def test_file_asks_for_a_flush_when_it_holds_too_much_and_forgets_what_is_lost() -> None:
    handler = file_handler(SimDisk(), bytes_max=1_500)
    await handler.start()
    await handler.handle([record(T0, 0, b"x" * 1_000)])
    assert not handler.full
    await handler.handle([record(T1, 0, b"x" * 1_000)])
    assert handler.full
    handler.lose([T0])
    assert not handler.full
    await handler.handle([record(T0, 0, b"x" * 1_000)])
    await handler.flush()
    assert not handler.full


async def test_file_forgets_nothing_when_it_cannot_be_written() -> None:
    disk = SimDisk()
    handler = file_handler(disk)
    await handler.start()
    await handler.handle(records(T0, 0, 1))
    for op in ("append", "sync", "rename", "sync_dir"):
        disk.fail(op, 5)
        with pytest.raises(OSError, match="injected"):
            await handler.flush()
    await handler.handle(records(T0, 2))
    await handler.flush()
    assert offsets_in(disk, "t-0-0-3.jsonl") == [0, 1, 2]
    assert not [name for name in names(disk) if name.endswith(".part")]


async def finishes(calls: int, how: Crash) -> bool:
    """Two flushes, with the power cut after so many calls of the disk."""
    disk = SimDisk()
    disk.make_dir(FOLDER)
    disk.sync_dir("/")
    disk.stop_after = len(disk.trace) + calls
    handler = file_handler(disk)
    flushed = False
    try:
        await handler.start()
        await handler.handle(records(T0, 0, 1, 2))
        await handler.flush()
        flushed = True
        await handler.handle(records(T0, 3))
        await handler.flush()
        finished = True
    except PowerCut:
        finished = False
    disk.stop_after = None
    disk.crash(how)
    complete = [name for name in names(disk) if name.endswith(".jsonl")]
    for name in complete:
        first, end = map(int, name.removesuffix(".jsonl").split("-")[2:])
        assert offsets_in(disk, name) == list(range(first, end))
    if flushed:
        assert "t-0-0-3.jsonl" in complete
    await file_handler(disk).start()
    assert [name for name in names(disk) if name not in complete] == []
    return finished


@pytest.mark.parametrize("how", [Crash.PROCESS, Crash.DROP_UNSYNCED])
async def test_file_whenever_power_fails_a_file_is_whole_or_not_there_and_safe_after_the_flush(how: Crash) -> None:
    calls = 0
    while not await finishes(calls, how):
        calls += 1
    assert calls > 8


# -- functions -------------------------------------------------------------------------------------------------------------------


@pytest.mark.real_loop
async def test_a_blocking_function_runs_in_a_thread_so_that_pings_are_answered() -> None:
    go_on = threading.Event()
    seen: list[tuple[bool, int]] = []

    def blocks(batch: list[ConsumerRecord]) -> None:
        go_on.wait(10)
        seen.append((threading.current_thread() is threading.main_thread(), len(batch)))

    handling = asyncio.gather(FunctionHandler(blocks).handle(records(T0, 0, 1)))
    await asyncio.sleep(0)  # the loop runs on while the function blocks
    assert seen == []
    go_on.set()
    await handling
    assert seen == [(False, 2)]


async def test_an_async_function_and_an_async_object_are_awaited() -> None:
    seen: list[int] = []

    async def function(batch: list[ConsumerRecord]) -> None:
        await asyncio.sleep(0)
        seen.append(batch[0].offset)

    class Callable:
        async def __call__(self, batch: list[ConsumerRecord]) -> None:
            await function(batch)

    await FunctionHandler(function).handle(records(T0, 1))
    await FunctionHandler(Callable()).handle(records(T0, 2))
    assert seen == [1, 2]


def test_an_entry_point_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "mine_for_a_test.py").write_text("class A:\n    @staticmethod\n    def f(batch): pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert callable(load_function("mine_for_a_test:A.f"))


@pytest.mark.parametrize(
    ("entry_point", "said"),
    [
        ("cuont", "'cuont' is no built-in handler and not package.module:function"),
        (":f", "not package.module:function"),
        ("json:", "not package.module:function"),
        ("no.such.module:f", "cannot import 'no.such.module'"),
        ("json:lods", "module 'json' has no 'lods'"),
        ("json:__name__", "json:__name__ cannot be called: it is a str"),
    ],
)
def test_an_entry_point_that_is_none_is_told_in_one_line(entry_point: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_function(entry_point)
    assert said in caught.value.message
    assert "\n" not in caught.value.message


def test_a_broken_module_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "broken_for_a_test.py").write_text("def f(:\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match="cannot import 'broken_for_a_test'"):
        load_function("broken_for_a_test:f")


@pytest.mark.real_loop
async def test_what_a_handler_raises_keeps_its_code() -> None:
    def refuses(batch: list[ConsumerRecord]) -> None:
        raise TidelogError("no", ErrorCode.INVALID_RECORD)

    with pytest.raises(TidelogError, match="no"):
        await FunctionHandler(refuses).handle(records(T0, 0))
