"""A whole cluster in one seeded event loop: what it promises holds, and a seed repeats its run."""

import hashlib
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from helpers.requirements import requirement
from helpers.told_faults import Done
from tidelog.controller.outbox import Outbox
from tidelog.lab.scene import scene
from tidelog.lab.seed import SeedPlayer
from tidelog.lab.steps import Act
from tidelog.lab.story import simulated
from tidelog.storage.compaction import _Pass
from tidelog.testing import goals, sim
from tidelog.testing.invariants import Violation
from tidelog.testing.sim_agent import AgentNode
from tidelog.testing.sim_compaction import CompactRun
from tidelog.testing.sim_edges import EdgeRun
from tidelog.testing.sim_groups import GROUPS, GroupRun
from tidelog.testing.sim_losses import LossRun
from tidelog.testing.sim_moves import MoveRun
from tidelog.testing.sim_story import DELIVERED_MIN, Result, Run, run_story, run_traced, run_twice
from tidelog.testing.sim_suspicion import FalseSuspicions
from tidelog.testing.sim_twins import TwinRun
from tidelog.testing.stories import name_of, story_of
from tidelog.testing.unclean_watch import Unclean
from tidelog.testing.watchers import Watchers
from tidelog.watch.ring import Ring

pytestmark = pytest.mark.sim

SEEDS_OF_KINDS = (0, 5, 6, 7, 10, 15, 116)


@requirement("A follower that receives no answers is not counted as caught up")
@requirement("The leader is in the ISR and the ISR is among the replicas")
@requirement("ISR members agree below the HW of a presumed leader")
@requirement("Stored ISR members agree below the HW of every presumed leader")
@requirement("Every ISR member reaches the high watermark of the leader")
@requirement("A committed record never disappears or changes")
@requirement("Epochs never decrease and one epoch has one leader")
@requirement("The exposed high watermark never moves back")
@requirement("Repeated or reordered control messages break no invariant")
@requirement("A partition has one pending ISR change, and it is resolved")
@requirement("The ISR converges to all live replicas that have caught up")
@requirement("A leader that loses power returns outside the ISR")
@requirement("Packet loss and slow links delay records and lose none")
@requirement("A jump of the wall clock changes nothing but timestamps")
@requirement("A random mix of faults loses no record acknowledged by all")
@pytest.mark.gate
@pytest.mark.timeout(3600)
def test_200_seeds_hold_every_invariant_heal_and_reach_every_goal() -> None:
    """I1 to I15, N01 to N09, LIVE-1 to 4, X1 and X2 (reliability 3.7, 1.6)."""
    done = subprocess.run(
        [sys.executable, "-m", "tidelog.testing.sim", "--seeds", "200"], capture_output=True, text=True, timeout=3500
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


def test_a_seed_plays_one_story_and_sixteen_in_a_row_play_all() -> None:
    for first in (0, 5, 992):
        played = Counter(story_of(seed) for seed in range(first, first + 16))
        assert played == {Run: 7, GroupRun: 2, CompactRun: 2, MoveRun: 2, EdgeRun: 1, LossRun: 1, TwinRun: 1}


def test_every_kind_of_fault_is_drawn() -> None:
    """Each run draws its kinds; together they must have seen all of them (reliability 4.4). An eighth has one kind alone."""
    usual = [seed for seed in range(100) if not FalseSuspicions.drawn(seed)]
    assert 5 < 100 - len(usual) < 20
    drawn = Counter(name for seed in usual[:50] for name in Run(seed).faults.kinds)
    assert len(drawn) == 28 and min(drawn.values()) > 10, drawn


@pytest.mark.filterwarnings("ignore")
def test_a_broker_that_was_suspected_and_lives_costs_nothing() -> None:
    """Design 3, Failure detection: a wrong suspicion is harmless. Every invariant is checked in this run."""
    result = next(run_traced(Run, seed)[1] for seed in range(100) if FalseSuspicions.drawn(seed))
    assert set(result.faults) == {"false suspicion"} and result.reached[goals.MISLED] > 0


def test_every_kind_of_fault_of_groups_is_drawn() -> None:
    drawn = Counter(name for seed in range(50) for name in GroupRun(seed).faults.kinds)
    assert len(drawn) == 29 and min(drawn.values()) > 10, drawn


@requirement("Committed offsets never move back and leave no gap")
@requirement("At most one consumer of a group delivers a partition")
@pytest.mark.filterwarnings("ignore")
def test_i16_groups_hold_every_invariant_and_process_every_record() -> None:
    """N11 to N13, X5 and LIVE-5; again, and nothing of it differs."""
    first = run_story(GroupRun, 0)
    assert first.acked > 100 and first.processed >= len(GROUPS) * first.acked
    assert run_story(GroupRun, 0) == first


@requirement("A reassignment survives a failure at each of its steps")
@pytest.mark.filterwarnings("ignore")
def test_partitions_move_between_four_brokers_while_everything_breaks() -> None:
    """Every invariant is checked, and each move has come to its end; again, and nothing of it differs."""
    first = run_story(MoveRun, 14)
    assert first.acked > 100 and first.reached[goals.MOVED] > 10
    assert run_story(MoveRun, 14) == first


@requirement("A reassignment survives a failure at each of its steps")
@pytest.mark.filterwarnings("ignore")
def test_who_keeps_a_copy_of_what_has_moved_away_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Outbox, "stop", lambda outbox, partition, brokers: None)
    with pytest.RaisesGroup(
        pytest.RaisesExc(Violation, match="^no convergence 90 s after healing"), flatten_subgroups=True
    ):
        run_story(MoveRun, 14)


@pytest.mark.filterwarnings("ignore")
def test_a_compacted_topic_keeps_the_newest_record_of_each_key_while_everything_breaks() -> None:
    """And nothing that was deleted comes back; again, and nothing of it differs."""
    first = run_story(CompactRun, 1)
    assert first.acked > 100 and first.reached[goals.COMPACTED] == 1
    assert run_story(CompactRun, 1) == first


@pytest.mark.filterwarnings("ignore")
def test_a_pass_that_drops_the_newest_record_of_a_key_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    stays = _Pass._stays
    monkeypatch.setattr(_Pass, "_stays", lambda job, header, place: stays(job, header, place) and place.key != b"key-7")
    with pytest.raises(Violation, match="compaction: table-0"):
        run_story(CompactRun, 1)


@pytest.mark.filterwarnings("ignore")
def test_last_replicas_are_lost_and_topics_come_back() -> None:
    """Unclean elections lose what they must and no more; again, and nothing of it differs."""
    first = run_story(LossRun, 2)
    assert first.reached[goals.CHOSEN] and first.reached[goals.UNCLEAN_LOSS] and first.reached[goals.SET_BACK]
    assert run_story(LossRun, 2) == first


@pytest.mark.filterwarnings("ignore")
def test_records_that_an_unclean_leader_drops_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The elected log counts as longer than it is, so that what went with the others is no longer explained."""
    monkeypatch.setattr(Unclean, "lacks", lambda *_: False)
    with pytest.RaisesGroup(pytest.RaisesExc(Violation, match="frail"), flatten_subgroups=True):
        run_story(LossRun, 2)


@pytest.mark.filterwarnings("ignore")
def test_a_second_process_of_a_broker_changes_nothing() -> None:
    """It ends and names the first, or waits; again, and nothing of it differs."""
    first = run_story(TwinRun, 2)
    assert first.acked > 100 and first.reached[goals.SECOND_ENDED] and first.faults["second process"]
    assert run_story(TwinRun, 2) == first


class SlowRun(GroupRun):
    """Every application takes about five seconds over a few records."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        for node in (node for nodes in self.agents.values() for node in nodes):
            node.habits = replace(node.habits, slow_share=1.0, session_ms=5_000, chunk=5)


@pytest.mark.filterwarnings("ignore")
def test_live_5_counts_from_healing_and_slow_applications_are_a_fault_that_ends_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert run_story(SlowRun, 0).processed > 100
    monkeypatch.setattr(AgentNode, "hasten", lambda node: None)
    with pytest.RaisesGroup(pytest.RaisesExc(Violation, match="LIVE-5"), flatten_subgroups=True):
        run_story(SlowRun, 0)


@pytest.mark.filterwarnings("ignore")  # a killed process leaves coroutines that never ended: that is what a kill is
def test_equal_seeds_give_equal_runs_and_others_do_not() -> None:
    first = run_traced(Run, 3)
    assert first[1].delivered >= DELIVERED_MIN
    assert run_traced(Run, 3) == first
    assert run_traced(Run, 4)[0] != first[0]


def test_a_seed_repeats_its_run_in_another_process_too() -> None:
    """Hashes of texts differ from process to process, addresses of objects always do."""
    script = (
        "import warnings, logging; warnings.simplefilter('ignore'); logging.disable();"
        "from tidelog.testing.sim_story import Run, run_traced; print(*run_traced(Run, 14))"
    )
    found = set()
    for hashes in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": hashes},
            capture_output=True,
            text=True,
            check=True,
            timeout=100,
        )
        found.add(done.stdout.split("\n")[-2])
    assert len(found) == 1, found


def once(seed: int) -> Any:
    """In `make test` there are two kinds of runs, since each is played twice; the gate has all."""
    kind = story_of(seed)
    return pytest.param(seed, id=kind.__name__, marks=() if kind in (Run, GroupRun) else pytest.mark.gate)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", [*map(once, SEEDS_OF_KINDS)])
def test_watchers_change_nothing(seed: int) -> None:
    """One seed of each kind; `make sim WATCHED=1` plays more."""
    assert run_twice(story_of(seed), seed).delivered >= DELIVERED_MIN


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", [*map(once, SEEDS_OF_KINDS)])
def test_the_lab_plays_the_same_run_in_parts(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks at everything between two parts, also in the middle of a turn of the loop."""
    kind, digest, steps = story_of(seed), hashlib.sha256(), count(1)
    player, processes = SeedPlayer(simulated(seed, name_of(kind))), set[str]()
    player.cluster.sim.network.trace = lambda line: digest.update(line.encode())
    try:
        with monkeypatch.context() as patched:
            done = Done(patched, player.cluster)
            while not player.over:
                player.advance(player.time + 0.4, lambda: next(steps) % 1_501 == 0)
                scene(player.cluster, player.cluster.view.partitions())
                processes |= player.cluster.view.processes().keys()
    finally:
        player.close()
    assert digest.hexdigest() == run_traced(kind, seed)[0]
    acts = [step for step in player.steps if isinstance(step, Act)]
    assert (done.untold(acts), done.unfounded(acts)) == ([], [])
    assert {name for act in acts for name in act.struck} <= processes


@pytest.mark.filterwarnings("ignore")
def test_watchers_that_draw_a_delay_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    follow = Watchers._follow

    def draw(watchers: Watchers, ring: Ring) -> None:
        watchers._world.network.rand.random()
        follow(watchers, ring)

    monkeypatch.setattr(Watchers, "_follow", draw)
    with pytest.raises(Violation, match="watchers change the run"):
        run_twice(Run, 0)


def test_a_seed_that_fails_says_how_to_look_at_it(capsys: pytest.CaptureFixture[str]) -> None:
    sim.report(sim.Outcome(7, None, "Violation: a record is gone", 0.1), watched=True)
    said, again, look = capsys.readouterr().out.splitlines()
    assert said == "seed 7: Violation: a record is gone"
    assert again == "  again: make sim SEEDS=1 SEED=7 WATCHED=1"
    assert look == "  step by step in the lab: make sim SEED=7 STORY=seed-7.yaml"


def judged(monkeypatch: pytest.MonkeyPatch, reached: Counter[str], failure: str = "") -> int:
    """Exit code of a run set whose every seed came to this."""
    result = Result(acked=1, read=1, delivered=DELIVERED_MIN, faults=Counter(), reached=reached, vetoed=0)
    monkeypatch.setattr(sim, "attempt", lambda seed: sim.Outcome(seed, None if failure else result, failure, 0.1))
    monkeypatch.setattr(sys, "argv", ["sim", "--seeds", str(goals.JUDGED_SEEDS), "--jobs", "1"])
    return sim.main()


@pytest.mark.parametrize("goal", goals.GOALS)
def test_a_set_that_never_reached_a_goal_is_invalid_and_says_which(
    goal: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    every = Counter(dict.fromkeys(goals.GOALS, 1))
    assert judged(monkeypatch, every) == 0
    assert judged(monkeypatch, every, failure="Violation: I1") == 1
    every[goal] = 0
    capsys.readouterr()
    assert judged(monkeypatch, every) == 1
    assert f"never reached, so this set of seeds proves nothing: {goal}" in capsys.readouterr().out
