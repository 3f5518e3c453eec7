"""A seed of the simulator in the lab: the same run, in parts, back and forth, with whatever makes it fail as the violation."""

import asyncio
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import seed_story
from helpers.told_faults import ALL, Done
from tidelog.chaos.yaml_nodes import parse
from tidelog.cli import main
from tidelog.errors import TidelogError
from tidelog.lab import story_text, tell
from tidelog.lab.page_source import LabSource
from tidelog.lab.play import play
from tidelog.lab.scene import scene
from tidelog.lab.seed import SeedPlayer
from tidelog.lab.steps import Act, Steps
from tidelog.lab.story import Story, StoryError, simulated
from tidelog.lab.story_file import story
from tidelog.page.hub import Hub
from tidelog.page.source import Refused
from tidelog.testing import sim_faults, slow_disks
from tidelog.testing.clock import ManualClock, SimClock
from tidelog.testing.disk import PowerCut
from tidelog.testing.invariants import Violation
from tidelog.testing.observer import Observer
from tidelog.testing.sim_faults import Faults
from tidelog.testing.sim_story import Run
from tidelog.watch.ring import Ring
from tidelog.wire import messages as m
from unit.lab.test_session import Told

FAILS_S = 1.2
PLANTED = "a record of events-0 is gone"


def read(text: str) -> Story:
    return story(parse(text, "f"))


def plant(monkeypatch: pytest.MonkeyPatch, fail: Callable[[], None]) -> None:
    """`fail` is called after each step from a time on."""
    after_step = Observer.after_step

    def planted(observer: Observer) -> None:
        after_step(observer)
        if asyncio.get_running_loop().time() >= FAILS_S:
            fail()

    monkeypatch.setattr(Observer, "after_step", planted)


def violate() -> None:
    raise Violation(PLANTED)


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, violate)


def test_a_seed_that_held_holds_and_says_where_it_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    text, ended = story_text.of_seed(1)
    assert ended.startswith("seed 1 held after ") and "\n" not in ended
    told = read(text)
    assert (told.seed, told.simulation, told.text) == (1, "cluster", "Every check of the run held.")
    played = play(told)
    assert played.held and played.notes[0].held and played.verdict.acknowledged > 100
    plant(monkeypatch, violate)
    played = play(told)
    assert not played.held and not played.notes[0].held
    lines = list(tell.lines(played))
    assert lines[-1].startswith("FAILED  verdict: ") and lines[-1].endswith(f"violated: {PLANTED}")
    assert "acknowledged;" in lines[-1] and "lost" not in lines[-1], "what is not known is not told"
    assert lines[-2].startswith(f"note    the {told.chain.steps:,} steps are those")  # type: ignore[union-attr]
    assert f"they differ from step {len(played.steps) + 1:,} on: it ends there" in lines[-2]


def test_all_that_is_done_to_a_run_is_told_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Faults, "_drawn", lambda faults, kinds: kinds)
    monkeypatch.setattr(Faults, "DAMAGE_SHARE", 1.0)
    monkeypatch.setattr(slow_disks, "SHARE", 1.0)
    monkeypatch.setattr(Faults, "ROT_SHARE", 1.0)
    monkeypatch.setattr(sim_faults, "PACES_S", (0.08,))
    reached: set[str] = set()
    for simulation, seed, until_s in (
        ("edges", 4, math.inf),
        ("cluster", 5, 3.0),
        ("cluster", 3, 3.0),
        ("losses", 10, 9.0),
        ("twins", 1, math.inf),
        ("groups", 0, math.inf),
    ):
        player = SeedPlayer(simulated(seed, simulation))
        with monkeypatch.context() as patched:
            done = Done(patched, player.cluster)
            player.advance(until_s)
        acts = [step for step in player.steps if isinstance(step, Act)]
        assert (done.untold(acts), done.unfounded(acts)) == ([], []), simulation
        reached |= {what for _, what, _ in done.seen}
        player.close()
    assert reached == ALL


@pytest.mark.usefixtures("planted")
def test_a_violation_stops_time_and_is_found_again() -> None:
    text, ended = story_text.of_seed(0)
    assert ended.startswith("seed 0 failed after 1.2") and ended.endswith(f" s: {PLANTED}")
    told = Told(read(text), tick_s=0.0001)
    session = told.session
    try:
        assert told.last("picture")["t"] == 0.0 and told.last("lesson")["text"] == PLANTED
        session.set_speed(100)
        told.play(0.5)
        early = told.steps()
        assert told.last("picture")["verdict"]["sound"]
        session.play(on=True)
        while session.playing:
            session.frame(0.1)
        verdict, end = told.last("picture")["verdict"], told.last("time")["end"]
        assert verdict["violation"] == {"text": PLANTED, "n": end["n"] - 1} and not verdict["sound"]
        assert (verdict["lost"], verdict["waiting"], verdict["longest_wait"]) == (None, None, None)
        with pytest.raises(Refused, match="time stands"):
            session.play(on=True)
        whole = told.steps()
        session.to({"event": len(early) - 1})
        assert told.steps() == early and told.last("picture")["verdict"]["violation"] is None
        session.to({"t": end["t"]})
        assert told.last("picture")["verdict"]["violation"]["text"] == PLANTED and told.steps() == whole
        assert told.last("time")["n"] == end["n"] and told.last("time")["end"] == end
    finally:
        session.close()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (TidelogError("a broker is no more"), "TidelogError: a broker is no more"),
        (PowerCut("append /data/events-0"), "PowerCut: append /data/events-0"),
        (ExceptionGroup("of a run", [ExceptionGroup("of a task", [Violation(PLANTED)])]), PLANTED),
    ],
    ids=lambda each: type(each).__name__,
)
def test_any_error_that_fails_a_seed_is_the_violation(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, said: str
) -> None:
    async def consume(run: Run) -> None:
        await asyncio.sleep(FAILS_S)
        raise error

    monkeypatch.setattr(Run, "_consume", consume)
    player = SeedPlayer(simulated(0, "cluster"))
    for _ in range(2):
        with pytest.raises(Violation) as raised:
            player.advance(math.inf)
        assert str(raised.value) == said and player.over
    player.close()


def test_nothing_can_be_done_to_a_run_of_the_simulator() -> None:
    told = Told(simulated(0, "cluster"))
    try:
        with pytest.raises(Refused, match="its seed decides what happens"):
            told.session.act({"do": "kill", "process": "broker-0"})
        assert told.last("time")["t"] == 0.0
    finally:
        told.session.close()


def test_the_page_of_a_seed_offers_no_act(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, violate)
    file = tmp_path / "seed.yaml"
    file.write_text(story_text.of_seed(0)[0])
    hub = Hub()
    hellos: list[dict[str, Any]] = []
    monkeypatch.setattr(hub, "tell", lambda kind, content: hellos.append(content) if kind == "hello" else None)
    source = LabSource(hub, simulated(0, "cluster"), str(file), ManualClock())
    source.start()
    try:
        assert (hellos[-1]["acts"], hellos[-1]["saves"], hellos[-1]["story"]) == ([], ["page"], str(file))
        assert "A run of the simulator (cluster) that failed after 1.2" in hellos[-1]["about"]
        with pytest.raises(Refused, match="as: 'story' is none of page"):
            source.save("story").result()
        assert "<html" in source.save("page").result().content
    finally:
        source.close()


def test_a_run_that_is_over_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ended(run: Run) -> None:
        run.cluster.start()
        await asyncio.sleep(1.0)

    monkeypatch.setattr(Run, "story", ended)
    told = Told(simulated(0, "cluster"))
    try:
        told.session.set_speed(100)
        told.play(math.inf)
        assert told.session.time == 1.0 and told.last("picture")["verdict"]["sound"]
        with pytest.raises(Refused, match="the run is over"):
            told.session.to({"event": told.last("time")["end"]["n"]})
    finally:
        told.session.close()


def test_a_second_process_of_a_broker_is_in_the_picture() -> None:
    player = SeedPlayer(simulated(10, "twins"))
    names: dict[str, str] = {}
    try:
        while player.time < 4.0:
            player.advance(player.time + 0.5)
            found = scene(player.cluster, player.cluster.view.partitions())
            names |= {each["name"]: each["note"] for each in found["processes"]}
        assert {"broker-0", "controller-1", "zookeeper"} < names.keys()
        assert any(
            name.startswith("twin-") and note.startswith("a second process of broker-") for name, note in names.items()
        )
    finally:
        player.close()


def test_a_look_moves_no_clock_that_drifts() -> None:
    player = SeedPlayer(simulated(4, "groups"))
    try:
        player.advance(3.0)
        nodes = player.cluster.sim.nodes.values()
        before = [node.clock._last for node in nodes]
        found = scene(player.cluster, player.cluster.view.partitions())
        assert any("active" in each["note"] for each in found["processes"])
        assert [group["coordinator"] != "" for group in found["groups"]] == [True, True]
        assert [node.clock._last for node in nodes] == before and before.count(-math.inf) < len(before) / 2
    finally:
        player.close()


async def test_a_ring_of_the_lab_moves_a_clock_as_any_ring() -> None:
    clocks = [SimClock(drift=0.01), SimClock(drift=0.01)]
    one, other = Ring("broker-0", 1, clocks[0]), Steps().ring("broker-0", 1, clocks[1])
    for offset in range(3):
        for ring in (one, other):
            ring.fold(None, m.HighWatermarkAdvanced, offset, offset + 1)
    assert clocks[0].now() == clocks[1].now() > 2e-9


GOOD = "version: 1\ntitle: A run\nseed: 3\nsimulation: cluster\n"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("simulation: cluster", "simulation: twin", "f:4: simulation: 'twin' is none of cluster, groups,"),
        ("seed: 3", "seed: x", "f:3: seed: 'x' is not a whole number from 0 to 9007199254740992"),
        ("seed: 3\n", "", "f:1: seed is missing"),
        (
            "seed: 3",
            "seed: 3\nactions: []",
            "f:4: actions: a story with `simulation` has none; its seed decides everyth",
        ),
        ("seed: 3", "seed: 3\ntopic: []", "f:4: 'topic' is not known here"),
        ("version: 1", "version: 2", "f:1: version: the story has version 2, this tidelog knows 1"),
        ("seed: 3", "seed: 3\ndigest: {steps: 1}", "f:4: digest: every is missing"),
    ],
)
def test_a_mistake_in_the_file_of_a_seed_is_one_line(old: str, new: str, said: str) -> None:
    assert old in GOOD and read(GOOD).duration_s == math.inf
    with pytest.raises(StoryError) as raised:
        read(GOOD.replace(old, new))
    assert str(raised.value).startswith(said) and "\n" not in str(raised.value)


@pytest.mark.usefixtures("planted")
def test_the_exit_code_says_whether_a_seed_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "seed.yaml"
    file.write_text(GOOD)
    assert main.run(["lab", "run", str(file), "--format", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["held"], found["verdict"]["violation"], found["verdict"]["lost"]) == (False, PLANTED, None)


def script(monkeypatch: pytest.MonkeyPatch, *args: str) -> int | str | None:
    monkeypatch.setattr(sys, "argv", ["seed_story.py", *args])
    try:
        return seed_story.main()
    except SystemExit as exit_:
        return exit_.code


@pytest.mark.usefixtures("planted")
def test_make_sim_writes_a_seed_as_a_story(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a seed.yaml"
    assert script(monkeypatch, "--seed", "0", "--story", str(file)) == 0
    ended, look = capsys.readouterr().out.splitlines()
    assert ended.startswith("seed 0 failed after 1.2") and f"tidelog lab --lesson '{file}' --open" in look
    assert not play(read(file.read_text())).held


@pytest.mark.parametrize(
    ("seed", "place", "said"),
    [
        ("", "seed.yaml", "SEED: '' is not a whole number from 0 to 9007199254740992; STORY is the file of one seed"),
        ("-1", "seed.yaml", "SEED: '-1' is not a whole number"),
        ("9" * 5_000, "seed.yaml", "is not a whole number"),
        ("0", ".", "is a directory"),
        ("0", "none/seed.yaml", "cannot be written: No such file or directory"),
    ],
)
def test_bad_input_of_make_sim_is_one_line(
    seed: str,
    place: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(seed_story, "of_seed", lambda seed: ("", ""))
    assert script(monkeypatch, f"--seed={seed}", "--story", str(tmp_path / place)) == 2
    out, err = capsys.readouterr()
    assert said in err and (out, err.count("\n")) == ("", 1)
