"""Each fault on a cluster that is only a table: what it does, what it takes for its effect, and what is left when healed."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import pytest

from helpers.aio import run
from helpers.chaos_bed import fake_bed
from helpers.fake_cluster import FakeCluster, session_id
from helpers.requirements import requirement
from tidelog.chaos.faults import disks, links, transactions
from tidelog.chaos.faults.base import Bed, FaultMissed, Injected, On
from tidelog.chaos.faults.registry import FAULTS, fault_named, make
from tidelog.cluster.api import ClusterError, Direction, Sessions, State, Traffic, ways
from tidelog.ports.meta import Create, Delete, OutcomeUnknown

LOG = "t-0/00000000000000000000.log"
NEXT_LOG = "t-0/00000000000000000100.log"
INDEX = "t-0/00000000000000000000.index"
MARKS = "replication-offset-checkpoint"
DATA = {LOG: 1_000, NEXT_LOG: 500, INDEX: 80, INDEX.replace("000.", "100."): 16, ".clean-shutdown": 9, MARKS: 40}

FULL_PAGE_BYTES = 4096


@pytest.fixture
def cluster(tmp_path: Path) -> FakeCluster:
    made = FakeCluster(base=tmp_path)
    for name in made.names("broker"):
        for path, size in DATA.items():
            file = tmp_path / name / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(bytes(size))
    return made


async def inject(bed: Bed, name: str, *targets: str, **texts: str) -> Injected:
    return await make(fault_named(name), texts).inject(bed, targets)


@pytest.mark.parametrize(
    "name, targets, during",
    [
        ("kill", ["broker-1", "controller-1"], State.STOPPED),
        ("stop", ["broker-1"], State.STOPPED),
        ("pause", ["broker-1", "zookeeper-1"], State.PAUSED),
        ("wipe", ["broker-1"], State.STOPPED),
        ("torn-tail", ["broker-1"], State.STOPPED),
        ("bit-flip", ["broker-1"], State.STOPPED),
        ("bounce", ["broker-1"], State.RUNNING),
        ("restart", ["broker-1"], State.RUNNING),
        ("rolling-restart", ["broker-1", "broker-2"], State.RUNNING),
    ],
)
async def test_a_process_is_as_the_fault_says_and_runs_when_it_is_healed(
    cluster: FakeCluster, name: str, targets: list[str], during: State
) -> None:
    injected = await inject(fake_bed(cluster), name, *targets)
    assert {cluster.states[target] for target in targets} == {during}
    assert all(target in injected.effect for target in targets)
    await injected.heal()
    assert set(cluster.states.values()) == {State.RUNNING}


MISSES: Mapping[str, Mapping[str, str]] = {
    "kill": {},
    "stop": {},
    "pause": {},
    "bounce": {},
    "restart": {},
    "rolling-restart": {},
    "isolate": {"peers": "all controllers"},
    "packet-loss": {},
    "reset": {},
    "slow-link": {},
}


@pytest.mark.parametrize("name", MISSES)
def test_a_fault_without_an_effect_is_a_miss_and_leaves_nothing(
    cluster: FakeCluster, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "SEEN_WITHIN_S", 0.05)
    cluster.numb_names = {"broker-2"}
    bed = fake_bed(cluster)
    with pytest.raises(FaultMissed):
        run(inject(bed, name, "broker-2", **MISSES[name]))
    assert bed.in_force.left == []
    assert set(cluster.states.values()) == {State.RUNNING}
    assert not cluster.cut and not cluster.shaped and not any(cluster.loss.values())


@pytest.mark.parametrize("name", ["wipe", "torn-tail", "bit-flip"])
def test_files_that_stay_as_they_are_are_a_miss(cluster: FakeCluster, name: str) -> None:
    cluster.numb_files = {"broker-2"}
    with pytest.raises(FaultMissed):
        run(inject(fake_bed(cluster), name, "broker-2"))
    assert cluster.states["broker-2"] is State.RUNNING


def test_every_fault_that_looks_for_its_effect_is_seen_to_miss() -> None:
    looked_at_elsewhere = {"wipe", "torn-tail", "bit-flip", "lose-quorum", "full-disk"}
    assert MISSES.keys() | looked_at_elsewhere == FAULTS.keys()


FORMER, NEW = session_id("broker-1", 0), session_id("broker-1", 1)
REGISTERED = {FORMER: {"/brokers/ids/1": FORMER}, NEW: {"/brokers/ids/1": NEW}, 0: {}}


def look(alive: Collection[int], registered: int) -> Sessions:
    return Sessions(frozenset(alive), REGISTERED[registered])


BEFORE = look([FORMER], FORMER)


@pytest.mark.parametrize(
    "looks",
    [
        pytest.param([look([FORMER, NEW], NEW), look([FORMER, NEW], NEW)], id="registered at the first look"),
        pytest.param(
            [
                look([FORMER], FORMER),
                look([FORMER, NEW], FORMER),
                look([FORMER, NEW], 0),
                *[look([FORMER, NEW], NEW)] * 2,
            ],
            id="takes its place over after a while",
        ),
    ],
)
def test_a_broker_that_is_registered_again_while_its_session_of_before_lives_has_bounced(
    cluster: FakeCluster, looks: list[Sessions]
) -> None:
    cluster.down_s = 9.9  # ZooKeeper says how long was too long
    cluster.looks = [BEFORE, *looks, look([NEW], NEW)]
    injected = run(inject(fake_bed(cluster), "bounce", "broker-1"))
    assert injected.observed == {"broker-1": 9.9} and injected.effect == "killed and back: broker-1 after 9.9 s"
    assert next(iter(cluster.looks)) == look([NEW], NEW), "the end of the session came when all had been seen"


@pytest.mark.parametrize(
    "looks, when",
    [
        pytest.param([look([], 0)], "before it registered again", id="before it ran again"),
        pytest.param(
            [look([FORMER], FORMER), look([NEW], NEW)], "before it registered again", id="before it registered"
        ),
        pytest.param(
            [look([FORMER, NEW], NEW), look([NEW], NEW)], "before it was seen registered", id="perhaps before"
        ),
    ],
)
def test_a_bounce_that_a_session_has_not_outlived_is_a_miss_however_short(
    cluster: FakeCluster, looks: list[Sessions], when: str
) -> None:
    bed = fake_bed(cluster)
    cluster.down_s = 0.01
    cluster.looks = [BEFORE, *looks]
    with pytest.raises(FaultMissed, match=rf"down for 0\.0 s and its session of before ended {when}: no fast bounce"):
        run(inject(bed, "bounce", "broker-1"))
    assert bed.in_force.left == [] and set(cluster.states.values()) == {State.RUNNING}


def test_who_is_not_registered_has_no_session_to_outlive(cluster: FakeCluster) -> None:
    cluster.looks = [look([FORMER], 0)]
    with pytest.raises(FaultMissed, match="broker-1 is not registered"):
        run(inject(fake_bed(cluster), "bounce", "broker-1"))
    assert not cluster.done


def test_a_bounce_of_who_registers_nowhere_has_a_limit(cluster: FakeCluster) -> None:
    cluster.down_s = 3.1
    with pytest.raises(FaultMissed, match=r"controller-1 was down for 3\.1 s, a fast bounce lasts 3 s"):
        run(inject(fake_bed(cluster), "bounce", "controller-1"))
    run(inject(fake_bed(cluster), "bounce", "controller-1", within="4s"))


@requirement("A rolling restart of all brokers causes no rebalance")
async def test_a_rolling_restart_waits_for_every_isr_before_the_next(cluster: FakeCluster) -> None:
    bed = fake_bed(cluster)
    told: list[object] = []

    async def wait_until_led(topic: str, *, in_sync: bool, timeout_s: float) -> None:
        told.append((topic, in_sync, timeout_s, len(cluster.done)))

    bed.admin.wait_until_led = wait_until_led  # type: ignore[method-assign,assignment]
    await inject(bed, "rolling-restart", "broker-1", "broker-2", settle="9s")
    assert told == [("t", True, 9.0, 2), ("t", True, 9.0, 4)]


def test_the_quorum_is_lost_only_when_no_server_serves(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    from tidelog.chaos.faults import processes

    monkeypatch.setattr(processes, "NO_QUORUM_WITHIN_S", 0.05)
    with pytest.raises(FaultMissed, match="without the quorum being lost"):
        run(inject(fake_bed(cluster), "lose-quorum", "zookeeper-1"))
    assert cluster.states["zookeeper-1"] is State.RUNNING
    cluster.modes = dict.fromkeys(cluster.names("zookeeper"), "")
    injected = run(inject(fake_bed(cluster), "lose-quorum", "zookeeper-1", "zookeeper-2"))
    assert "zookeeper-1, zookeeper-2" in injected.effect


@pytest.mark.parametrize(
    "target, peers, direction, cut",
    [
        ("broker-1", "all zookeepers", "both", ways("broker-1", ["zookeeper-1", "zookeeper-2", "zookeeper-3"])),
        ("broker-1", "followers of 0", "both", ways("broker-1", ["broker-2", "broker-3"])),
        ("controller-1", "all brokers", "outbound", [("controller-1", f"broker-{n}") for n in (1, 2, 3)]),
        ("broker-1", "clients", "inbound", [("client", "broker-1")]),
        ("client", "all brokers", "both", ways("client", ["broker-1", "broker-2", "broker-3"])),
        ("broker-1", "everything", "both", ways("broker-1", FakeCluster().names())),
    ],
)
async def test_links_between_any_two_sets_are_cut_and_joined_again(
    cluster: FakeCluster, target: str, peers: str, direction: str, cut: list[tuple[str, str]]
) -> None:
    injected = await inject(fake_bed(cluster), "isolate", target, peers=peers, direction=direction)
    assert cluster.cut == set(cut)
    await injected.heal()
    assert not cluster.cut


def test_who_is_cut_off_together_stays_together(cluster: FakeCluster) -> None:
    run(inject(fake_bed(cluster), "isolate", "broker-1", "broker-2", peers="all brokers"))
    assert cluster.cut == {*ways("broker-1", ["broker-3"]), *ways("broker-2", ["broker-3"])}


def test_a_cut_between_nobody_and_nobody_is_an_error(cluster: FakeCluster) -> None:
    with pytest.raises(ClusterError, match="peers 'broker-1' are the targets themselves"):
        run(inject(fake_bed(cluster), "isolate", "broker-1", peers="broker-1"))


async def test_a_cut_ends_alone_and_leaves_the_other_one(cluster: FakeCluster) -> None:
    bed = fake_bed(cluster)
    one = await inject(bed, "isolate", "broker-1", peers="controller-1", direction=Direction.BOTH.value)
    await inject(bed, "isolate", "broker-2", peers="controller-1")
    await one.heal()
    assert cluster.cut == set(ways("broker-2", ["controller-1"]))


async def test_a_link_that_two_cuts_share_is_cut_until_both_end(cluster: FakeCluster) -> None:
    bed = fake_bed(cluster)
    one = await inject(bed, "isolate", "broker-1", peers="all brokers")
    other = await inject(bed, "isolate", "broker-2", peers="all brokers")
    await one.heal()
    assert cluster.cut == set(ways("broker-2", ["broker-1", "broker-3"]))
    await other.heal()
    assert not cluster.cut


@pytest.mark.parametrize("name", ["stop", "restart", "rolling-restart"])
def test_what_does_not_end_in_time_is_killed_and_started(cluster: FakeCluster, name: str) -> None:
    def stop(process: str, timeout_s: float = 30.0) -> None:
        raise ClusterError(f"no end of {process} within {timeout_s:g} s")

    cluster.stop = stop  # type: ignore[method-assign]
    with pytest.raises(ClusterError, match="no end of broker-1 within 30 s"):
        run(inject(fake_bed(cluster), name, "broker-1", "broker-2"))
    assert cluster.done == [("kill", "broker-1"), ("start", "broker-1")]


def test_what_ends_at_last_while_it_is_undone_is_started(cluster: FakeCluster) -> None:
    def stop(process: str, timeout_s: float = 30.0) -> None:
        raise ClusterError("too late")

    def kill(process: str) -> None:
        cluster.states[process] = State.STOPPED
        raise ClusterError(f"{process} does not run")

    cluster.stop, cluster.kill = stop, kill  # type: ignore[method-assign]
    bed = fake_bed(cluster)
    with pytest.raises(ClusterError, match="too late"):
        run(inject(bed, "stop", "broker-1"))
    assert cluster.done == [("start", "broker-1")] and bed.in_force.left == []


def test_a_cut_between_processes_of_which_none_runs_is_a_miss(cluster: FakeCluster) -> None:
    cluster.states |= dict.fromkeys(("broker-2", "broker-3"), State.STOPPED)
    with pytest.raises(FaultMissed, match="nobody runs at both ends of a link of broker-2"):
        run(inject(fake_bed(cluster), "isolate", "broker-2", peers="broker-3"))
    assert not cluster.cut


async def test_resets_go_on_until_healed(cluster: FakeCluster) -> None:
    bed = fake_bed(cluster)
    injected = await inject(bed, "reset", "broker-1", every="10ms")
    while cluster.done.count(("reset", "broker-1")) < 3:
        await bed.clock.sleep(0.005)
    await injected.heal()
    await bed.tasks.wait()


async def test_a_slow_link_is_slow_both_ways_until_healed(cluster: FakeCluster) -> None:
    traffic = {"peers": "broker-2", "delay": "100ms", "jitter": "50ms", "rate": "375kB/s"}
    injected = await inject(fake_bed(cluster), "slow-link", "broker-1", **traffic)
    assert cluster.shaped == dict.fromkeys(ways("broker-1", ["broker-2"]), Traffic(0.1, 0.05, 375_000.0))
    await injected.heal()
    assert not cluster.shaped


def test_what_cannot_be_played_somewhere_says_why() -> None:
    refused = [
        make(fault_named("pause"), {"how": "freezer"}).why_not(On.LOCAL),
        make(fault_named("packet-loss"), {}).why_not(On.LOCAL),
        make(fault_named("slow-link"), {}).why_not(On.COMPOSE),
    ]
    assert all(refused)
    allowed = [
        make(fault_named("pause"), {"how": "freezer"}).why_not(On.COMPOSE),
        make(fault_named("pause"), {}).why_not(On.LOCAL),
        make(fault_named("slow-link"), {"peers": "clients"}).why_not(On.COMPOSE),
        make(fault_named("packet-loss"), {}).why_not(On.COMPOSE),
    ]
    assert not any(allowed)


@requirement("A broker with a replaced disk rejoins an ISR only after catch-up")
def test_a_wiped_directory_is_empty(cluster: FakeCluster) -> None:
    run(inject(fake_bed(cluster), "wipe", "broker-1"))
    assert not cluster.files("broker-1").sizes()
    assert cluster.files("broker-2").sizes() == DATA


def test_a_torn_tail_is_that_of_the_newest_segment_and_the_marker_is_gone(cluster: FakeCluster) -> None:
    injected = run(inject(fake_bed(cluster), "torn-tail", "broker-1", bytes="123"))
    after = cluster.files("broker-1").sizes()
    assert after == {path: size for path, size in DATA.items() if path != ".clean-shutdown"} | {NEXT_LOG: 377}
    assert f"{NEXT_LOG} has 377 of 500 bytes" in injected.effect


@pytest.mark.parametrize(
    "file, path", [("segment", LOG), ("index", INDEX), ("checkpoint", MARKS)], ids=["segment", "index", "checkpoint"]
)
@pytest.mark.parametrize("state", ["stopped", "running"])
def test_one_bit_of_a_closed_file_is_flipped_and_nothing_else(
    cluster: FakeCluster, file: str, path: str, state: str
) -> None:
    run(inject(fake_bed(cluster), "bit-flip", "broker-1", file=file, state=state))
    assert cluster.states["broker-1"] is State(state)
    root = cluster.base / "broker-1"
    changed = {p: (root / p).read_bytes() for p in DATA if any((root / p).read_bytes())}
    assert changed.keys() == {path}
    assert sorted(changed[path], reverse=True)[:2] == [1, 0]


@pytest.mark.parametrize(
    "name, texts, complaint",
    [
        ("torn-tail", {"partition": "4"}, "broker-1 keeps no replica of t-4"),
        ("bit-flip", {"partition": "4"}, "broker-1 keeps no replica of t-4"),
        ("bit-flip", {"file": "epochs"}, "broker-1 has nothing in leader-epoch-journal"),
    ],
)
def test_what_is_not_there_cannot_be_damaged(
    cluster: FakeCluster, name: str, texts: dict[str, str], complaint: str
) -> None:
    with pytest.raises(ClusterError, match=complaint):
        run(inject(fake_bed(cluster), name, "broker-1", **texts))
    assert cluster.states["broker-1"] is State.RUNNING


async def test_a_disk_is_full_until_healed(cluster: FakeCluster) -> None:
    injected = await inject(fake_bed(cluster), "full-disk", "broker-1")
    assert cluster.full == {"broker-1"} and injected.effect == "broker-1 is full"
    await injected.heal()
    assert not cluster.full


class FakeMeta:
    """Of an ensemble some of whose servers find their disk full at the first transaction that does not fit."""

    def __init__(self, hosts: str, cluster: FakeCluster, find_it: Collection[str]) -> None:
        self.hosts, self.ops, self.closed = hosts, list[object](), False
        self._cluster, self._find_it = cluster, find_it

    async def start(self) -> None:
        pass

    async def close(self) -> None:
        self.closed = True

    async def multi(self, ops: Sequence[Create | Delete]) -> None:
        self.ops += ops
        if any(isinstance(op, Create) and len(op.data) > FULL_PAGE_BYTES for op in ops):
            self._cluster.modes = {**self._cluster.modes, **dict.fromkeys(self._find_it, "")}
        raise OutcomeUnknown(ops[0].path)


def ensemble(cluster: FakeCluster, find_it: Collection[str], monkeypatch: pytest.MonkeyPatch) -> list[FakeMeta]:
    made: list[FakeMeta] = []

    def make_meta(hosts: str, **_: object) -> FakeMeta:
        made.append(FakeMeta(hosts, cluster, find_it))
        return made[-1]

    monkeypatch.setattr(transactions, "ZkMeta", make_meta)
    return made


async def test_a_zookeeper_server_is_full_when_it_serves_nobody_and_begins_anew_with_room(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = ensemble(cluster, ["zookeeper-2"], monkeypatch)

    injected = await inject(fake_bed(cluster), "full-disk", "zookeeper-2")
    assert cluster.full == {"zookeeper-2"}
    assert injected.effect == "zookeeper-2 is full, zookeeper-2 serves nobody"
    await injected.heal()
    assert cluster.done == [("kill", "zookeeper-2"), ("free", "zookeeper-2"), ("start", "zookeeper-2")]

    (meta,) = made
    assert meta.hosts == "127.0.0.1:7001,127.0.0.1:7002,127.0.0.1:7003"
    assert meta.closed and all(isinstance(op, Delete) or op.ephemeral for op in meta.ops)  # type: ignore[attr-defined]


def test_one_of_two_zookeeper_servers_that_goes_on_is_a_miss_and_both_have_room_again(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disks, "ZOOKEEPER_FAILS_WITHIN_S", 0.05)
    ensemble(cluster, ["zookeeper-2"], monkeypatch)
    bed = fake_bed(cluster)
    with pytest.raises(FaultMissed, match="zookeeper-1 and zookeeper-2 finding it out"):
        run(inject(bed, "full-disk", "zookeeper-1", "zookeeper-2"))
    assert bed.in_force.left == [] and not cluster.full
    assert set(cluster.states.values()) == {State.RUNNING}


async def test_a_zookeeper_server_that_has_ended_for_want_of_room_is_started(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    ensemble(cluster, ["zookeeper-1"], monkeypatch)

    injected = await inject(fake_bed(cluster), "full-disk", "zookeeper-1", "broker-1")
    cluster.states["zookeeper-1"] = State.STOPPED
    await injected.heal()
    assert cluster.done == [("free", "zookeeper-1"), ("free", "broker-1"), ("start", "zookeeper-1")]
