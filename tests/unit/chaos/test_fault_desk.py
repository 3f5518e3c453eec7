"""Faults by hand: what the page of a running cluster offers, does and refuses."""

import asyncio
import threading
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from helpers.aio import eventually, run
from helpers.chaos_bed import fake_bed
from helpers.fake_cluster import FakeCluster
from helpers.overviews import broker, overview, partition, topic
from tidelog.chaos.fault_desk import FaultDesk
from tidelog.chaos.faults.base import On
from tidelog.chaos.metrics import ChaosMetrics
from tidelog.cluster.api import ClusterError, State
from tidelog.page.live import Note
from tidelog.page.overview_picture import Pictures
from tidelog.page.source import Refused


@dataclass
class Scene:
    cluster: FakeCluster = field(default_factory=FakeCluster)
    on: On = On.LOCAL
    notes: list[Note] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)

    def __post_init__(self) -> None:
        self.bed = bed = fake_bed(self.cluster, on=self.on)
        self.desk = FaultDesk(bed, ChaosMetrics(self.registry), self.notes, self.failed.append)

    async def act(self, do: str, **fields: Any) -> None:
        await asyncio.wrap_future(self.desk.do({"act": {"do": do, **fields}}))

    async def picture(self, seen: Any = None, *, ago_s: float = 0.0) -> dict[str, Any]:
        found = seen or overview(topic("t", partition(replicas=(1, 2, 3), isr=(1, 2, 3), leader=1)))
        found = replace(found, described_at=self.bed.clock.now() - ago_s)
        picture = Pictures(0).picture(found, 0)
        await self.desk.look()
        self.desk.complete(found, picture)
        return picture

    def told(self) -> list[str]:
        return [note.text for note in self.notes]

    def measured(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"tidelog_chaos_{name}", labels)


def acts(scene: Scene) -> dict[str, Any]:
    return {each["do"]: each for each in scene.desk.acts()}


def test_what_cannot_be_done_there_is_not_offered() -> None:
    local, compose = acts(Scene()), acts(Scene(on=On.COMPOSE))
    assert {"kill", "pause", "wipe", "heal"} <= local.keys() & compose.keys()
    assert {"isolate", "reset", "packet-loss"} <= compose.keys() and not {
        "isolate",
        "reset",
        "packet-loss",
    } & local.keys()
    assert "slow-link" not in compose, "the page has no clients of its own"
    assert "full-disk" not in acts(Scene(FakeCluster(shared_disks=True)))


def test_what_takes_data_away_asks_first() -> None:
    assert {name for name, act in acts(Scene()).items() if act["asks"]} == {"wipe", "torn-tail", "bit-flip"}


def test_parameters_are_fields_with_their_defaults() -> None:
    fields = {each["name"]: each for each in acts(Scene(on=On.COMPOSE))["isolate"]["fields"]}
    assert fields["process"]["choices"] == ["agent", "broker", "controller", "zookeeper"]
    assert (fields["direction"]["kind"], fields["direction"]["value"]) == ("choice", "both")
    assert fields["direction"]["choices"] == ["both", "inbound", "outbound"]
    assert (fields["peers"]["value"], fields["for"]["kind"]) == ("everything", "seconds")


async def test_a_fault_is_in_force_until_it_is_healed() -> None:
    scene = Scene()
    await scene.act("kill", process="broker-1")
    await eventually(lambda: len(scene.notes) == 2)
    assert scene.cluster.states["broker-1"] is State.STOPPED
    assert scene.notes == [Note("kill broker-1 begins", ("broker-1",)), Note("kill broker-1: broker-1 killed")]
    assert (await scene.picture())["faults"] == ["kill broker-1"]
    assert scene.measured("fault_active", fault="kill", target="broker-1") == 1
    await scene.act("heal", process="broker-1")
    await eventually(lambda: len(scene.notes) == 3)
    assert scene.cluster.states["broker-1"] is State.RUNNING
    assert scene.notes[2] == Note("kill broker-1 is healed", ("broker-1",), mends=True)
    assert scene.measured("fault_active", fault="kill", target="broker-1") == 0
    assert scene.measured("time_to_recover_seconds_count", fault="kill") == 0, "not yet"
    await scene.picture(overview(topic("t", partition(isr=(0, 1)))))
    assert scene.measured("time_to_recover_seconds_count", fault="kill") == 0
    await scene.picture(ago_s=5.0)
    assert scene.measured("time_to_recover_seconds_count", fault="kill") == 0, "this was before the fault"
    assert (await scene.picture())["faults"] == []
    assert scene.measured("time_to_recover_seconds_count", fault="kill") == 1
    assert scene.failed == []


async def test_a_fault_whose_time_is_over_is_healed() -> None:
    scene = Scene()
    await scene.act("pause", process="broker-1", **{"for": "50ms"})
    await scene.act("pause", process="broker-2")
    await eventually(lambda: scene.told()[-1:] == ["pause broker-1 is healed"])
    states = scene.cluster.states
    assert (states["broker-1"], states["broker-2"]) == (State.RUNNING, State.PAUSED)
    await scene.act("heal")
    await eventually(lambda: states["broker-2"] is State.RUNNING)


async def test_a_fault_that_passes_leaves_nothing_in_force() -> None:
    scene = Scene()
    await scene.act("restart", process="broker-1")
    await eventually(lambda: len(scene.notes) == 2)
    assert scene.told() == ["restart broker-1 begins", "restart broker-1: broker-1 restarted"]
    assert (await scene.picture())["faults"] == []


async def test_several_processes_are_hit_by_one_fault() -> None:
    scene = Scene()
    await scene.act("rolling-restart", target="all brokers", topic="t")
    await eventually(lambda: "restarted one after the other" in scene.told()[-1])
    assert [done for done in scene.cluster.done if done[0] == "stop"] == [
        ("stop", f"broker-{each}") for each in (1, 2, 3)
    ]


async def test_a_fault_without_effect_is_told_and_may_be_tried_again() -> None:
    scene = Scene()
    scene.cluster.numb_names.add("broker-1")
    for times in (1, 2):
        await scene.act("kill", process="broker-1")
        await eventually(lambda times=times: len(scene.failed) == times)
    assert "kill broker-1: broker-1 is running" in scene.failed[0]
    assert scene.notes[1].mends and scene.notes[1].text.startswith("kill broker-1 took no effect: broker-1 is running")
    assert (await scene.picture())["faults"] == []
    assert scene.measured("faults_total", fault="kill") is None


@pytest.mark.parametrize(
    ("do", "fields", "error"),
    [
        ("explode", {"process": "broker-1"}, "do: 'explode' is none of kill, stop"),
        ("isolate", {"process": "broker-1"}, "do: 'isolate' is none of"),
        ("kill", {}, "process: '' is not a process of this cluster, which has zookeeper-1"),
        ("kill", {"process": "broker-9"}, "process: 'broker-9' is not a process of this cluster"),
        ("kill", {"process": "<b>"}, "process: '<b>' is not a process"),
        ("kill", {"process": "broker-1", "how": "hard"}, "fault 'kill' has no parameter 'how'"),
        ("kill", {"process": "broker-1", "for": "soon"}, "'soon' is not a duration like 200ms"),
        ("kill", {"process": "all brokers"}, "process: 'all brokers' is not a process"),
        (
            "torn-tail",
            {"process": "broker-1", "topic": "t", "bytes": "9" * 400},
            "bytes: '99999999999999999999'... is too much",
        ),
        ("pause", {"process": "broker-1", "how": "freezer"}, "pause: a local process has no cgroup"),
        ("pause", {"process": "broker-1", "how": ["signal"]}, "how: \"['signal']\" is none of signal, freezer"),
        ("restart", {"process": "broker-1", "for": "2s"}, "fault 'restart' has no parameter 'for'"),
        ("torn-tail", {"process": "controller-1", "topic": "t"}, "fault 'torn-tail' hits brokers"),
        ("torn-tail", {"process": "broker-1"}, "topic: torn-tail needs one"),
        ("heal", {}, "no fault of this page is in force"),
        ("heal", {"process": "broker-1"}, "no fault of this page is in force at broker-1"),
        ("heal", {"all": True}, "all: heal has no such field"),
    ],
)
async def test_what_makes_no_sense_is_refused(do: str, fields: dict[str, Any], error: str) -> None:
    scene = Scene()
    with pytest.raises(Refused) as refused:
        await scene.act(do, **fields)
    assert error in str(refused.value) and "\n" not in str(refused.value)
    assert (scene.cluster.done, scene.notes) == ([], [])


@pytest.mark.parametrize(
    "command", [{}, {"play": True}, {"act": "kill"}, {"act": {"do": 1}}, {"act": {"do": "kill"}, "x": 1}]
)
async def test_other_commands_are_refused(command: dict[str, Any]) -> None:
    scene = Scene()
    with pytest.raises(Refused, match="one key here, act"):
        await asyncio.wrap_future(scene.desk.do(command))


def test_the_page_of_a_running_cluster_is_not_saved() -> None:
    with pytest.raises(Refused, match="cannot be saved"):
        Scene().desk.save("page").result()


async def test_a_process_has_one_fault_at_a_time() -> None:
    scene = Scene()
    await scene.act("pause", process="broker-1")
    with pytest.raises(Refused, match="broker-1: pause broker-1 is in force or begins there; heal it first"):
        await scene.act("kill", process="broker-1")  # it may have begun only
    await eventually(lambda: len(scene.notes) == 2)
    with pytest.raises(Refused, match="heal it first"):
        await scene.act("rolling-restart", target="all brokers", topic="t")
    await scene.act("kill", process="broker-2")


async def test_a_fault_that_cannot_be_healed_stays_in_force() -> None:
    scene = Scene()

    def start(name: str) -> None:
        raise ClusterError(f"{name} does not start: its disk is full")

    starts, scene.cluster.start = scene.cluster.start, start  # type: ignore[method-assign]
    await scene.act("kill", process="broker-1")
    await eventually(lambda: len(scene.notes) == 2)
    await scene.act("heal")
    await eventually(lambda: len(scene.failed) == 1)
    assert scene.failed == ["kill broker-1 could not be healed: broker-1 does not start: its disk is full"]
    assert (await scene.picture())["faults"] == ["kill broker-1"]
    scene.cluster.start = starts  # type: ignore[method-assign]
    await scene.act("heal")
    await eventually(lambda: scene.cluster.states["broker-1"] is State.RUNNING)


async def test_pictures_have_what_no_broker_tells() -> None:
    scene = Scene()
    scene.cluster.states |= {"broker-1": State.STOPPED, "broker-2": State.PAUSED, "controller-2": State.PAUSED}
    seen = overview(
        topic("t", partition(replicas=(1, 2, 3), isr=(1, 2, 3), leader=1)),
        brokers=[broker(each, {("t", 0): 5}) for each in (1, 2, 3)],
    )
    picture = await scene.picture(seen)
    states = {each["name"]: each["state"] for each in picture["processes"]}
    assert list(states) == sorted(states) and states.keys() == scene.cluster.states.keys()
    changed = {name: state for name, state in states.items() if state != "up"}
    gone = {"broker-3": "down"}  # it runs, and the controller does not know it
    assert changed == {"broker-1": "down", "broker-2": "paused", "controller-2": "paused", **gone}
    assert [each["state"] for each in picture["partitions"][0]["replicas"]] == ["down", "up", "up"]

    def status() -> Any:
        raise ConnectionError("no Docker engine answers")

    scene.cluster.status = status  # type: ignore[method-assign]
    picture = await scene.picture(seen)
    assert picture["faults"] == ["no Docker engine answers"] and len(picture["processes"]) == 4


class Gate:
    """An act of the cluster that waits, in its thread, until it is let through."""

    def __init__(self, act: Any) -> None:
        self._act = act
        self.reached, self.open = threading.Event(), threading.Event()

    def __call__(self, name: str) -> None:
        self.reached.set()
        assert self.open.wait(10)
        self._act(name)


def test_two_heals_of_one_fault_are_one() -> None:
    scene = Scene()
    run(heal_twice(scene))
    assert scene.failed == [] and scene.told().count("kill broker-1 is healed") == 1


async def heal_twice(scene: Scene) -> None:
    await scene.act("kill", process="broker-1")
    await eventually(lambda: len(scene.notes) == 2)
    gate = scene.cluster.start = Gate(scene.cluster.start)  # type: ignore[method-assign, assignment]
    await scene.act("heal", process="broker-1")
    await scene.act("heal")
    await eventually(gate.reached.is_set)
    gate.open.set()
    await eventually(lambda: len(scene.notes) == 3)
    await scene.act("pause", process="broker-2", **{"for": "20ms"})
    await eventually(lambda: scene.told()[-1:] == ["pause broker-2 is healed"])
    await scene.desk.stop()


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ConnectionError("the engine has gone"), "kill broker-1: the engine has gone"),
        (KeyError("State"), "kill broker-1: an error ended it, which the terminal has"),
    ],
)
async def test_an_error_of_a_fault_ends_no_other(error: Exception, told: str) -> None:
    scene = Scene()

    def kill(name: str) -> None:
        raise error

    await scene.act("pause", process="broker-2", **{"for": "200ms"})
    await eventually(lambda: len(scene.notes) == 2)
    kills, scene.cluster.kill = scene.cluster.kill, kill  # type: ignore[method-assign]
    await scene.act("kill", process="broker-1")
    await eventually(lambda: scene.failed == [told])
    await eventually(lambda: scene.cluster.states["broker-2"] is State.RUNNING)
    scene.cluster.kill = kills  # type: ignore[method-assign]
    await scene.act("kill", process="broker-1")
    await eventually(lambda: scene.cluster.states["broker-1"] is State.STOPPED)


def test_an_injection_under_way_is_undone_at_the_end() -> None:
    scene = Scene()
    run(end_in_the_middle(scene))
    scene.bed.in_force.undo_all()
    assert scene.cluster.states["broker-1"] is State.RUNNING


async def end_in_the_middle(scene: Scene) -> None:
    """Ctrl-C cancels whatever waits for the end of the desk, at first and once more."""
    gate = scene.cluster.stop = Gate(scene.cluster.stop)  # type: ignore[method-assign, assignment]
    scene.cluster.stop = lambda name, timeout_s=30.0: gate(name)  # type: ignore[method-assign]
    await scene.act("stop", process="broker-1")
    await eventually(gate.reached.is_set)
    ending = asyncio.create_task(scene.desk.stop())
    for _ in range(2):
        await asyncio.sleep(0)
        ending.cancel()
        await asyncio.sleep(0)
    assert not ending.done()
    gate.open.set()
    with pytest.raises(asyncio.CancelledError):
        await ending
    assert scene.cluster.done == [("stop", "broker-1"), ("start", "broker-1")]


async def test_a_fault_that_begins_is_ended_by_a_heal() -> None:
    scene = Scene(on=On.COMPOSE)
    scene.cluster.numb_names.add("broker-1")
    await scene.act("packet-loss", process="broker-1")
    await asyncio.sleep(1.0)
    assert (await scene.picture())["faults"] == ["packet-loss broker-1 begins"] and scene.cluster.loss["broker-1"]
    with pytest.raises(Refused, match="no fault of this page is in force at broker-2"):
        await scene.act("heal", process="broker-2")
    await scene.act("heal", process="broker-1")
    await eventually(lambda: len(scene.notes) == 2)
    ended = "packet-loss broker-1 is ended before its effect was seen"
    assert scene.notes[1] == Note(ended, ("broker-1",), mends=True)
    assert not scene.cluster.loss["broker-1"] and (await scene.picture())["faults"] == [] and not scene.failed
    scene.cluster.numb_names.clear()
    await scene.act("kill", process="broker-1")
    await eventually(lambda: scene.cluster.states["broker-1"] is State.STOPPED)


def test_a_heal_waits_for_what_it_interrupts() -> None:
    scene = Scene()
    run(heal_in_the_middle(scene))
    assert scene.cluster.done == [("kill", "broker-1"), ("start", "broker-1")]


async def heal_in_the_middle(scene: Scene) -> None:
    gate = scene.cluster.kill = Gate(scene.cluster.kill)  # type: ignore[method-assign, assignment]
    await scene.act("kill", process="broker-1")
    await eventually(gate.reached.is_set)
    for _ in range(2):
        await scene.act("heal")
    gate.open.set()
    await eventually(lambda: len(scene.notes) == 2)
    await scene.desk.stop()


def test_an_engine_that_hangs_holds_up_no_picture() -> None:
    run(pictures_beside_a_hanging_engine(Scene()))


async def pictures_beside_a_hanging_engine(scene: Scene) -> None:
    status = scene.cluster.status
    gate = Gate(lambda name: None)
    scene.cluster.status = lambda: (gate(""), status())[1]  # type: ignore[method-assign]
    scene.bed.clock.now = lambda: asyncio.get_running_loop().time() + 10.0 * gate.reached.is_set()  # type: ignore[method-assign]
    scene.desk.start()
    await eventually(gate.reached.is_set)
    seen = overview(topic("t", partition()))
    picture = Pictures(0).picture(seen, 0)
    scene.desk.complete(seen, picture)
    assert picture["faults"] == ["no word of the state of processes for 10 s"]
    gate.open.set()
    await scene.desk.stop()


async def test_what_could_not_be_undone_is_shown_and_healed() -> None:
    scene = Scene()

    def start(name: str) -> None:
        raise ClusterError(f"{name} does not start")

    starts, scene.cluster.start = scene.cluster.start, start  # type: ignore[method-assign]
    await scene.act("torn-tail", process="broker-1", topic="t")  # which has no log there
    await eventually(lambda: scene.failed)
    left = "what is left of torn-tail broker-1"
    assert (await scene.picture())["faults"] == [left] and scene.cluster.states["broker-1"] is State.STOPPED
    with pytest.raises(Refused, match=f"broker-1: {left} is in force"):
        await scene.act("kill", process="broker-1")
    scene.cluster.start = starts  # type: ignore[method-assign]
    await scene.act("heal", process="broker-1")
    await eventually(lambda: scene.told()[-1] == f"{left} is healed")
    assert scene.cluster.states["broker-1"] is State.RUNNING and (await scene.picture())["faults"] == []
