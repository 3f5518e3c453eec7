"""Offsets: whose count, which are refused, when they are stored (OPEN-01, FIND-10, COORD-1, 11, 12)."""

from typing import Any

import pytest

from helpers.requirements import requirement
from tidelog.coordinator import effects as fx
from tidelog.coordinator import events as ev
from tidelog.coordinator.model import Committed
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.wire import messages as m
from unit.coordinator.scene import Scene, tps

E = ErrorCode
T0, T1, T2 = (TopicPartition("t", p) for p in range(3))


def answer(scene: Scene, token: Any) -> m.CommitOffsetsResponse:
    found: m.CommitOffsetsResponse = scene.replies[token]
    return found


def codes(scene: Scene, token: Any) -> list[ErrorCode]:
    found = answer(scene, token)
    return [found.error_code, *(each.error_code for each in found.results)]


def by_hand(scene: Scene, *offsets: m.OffsetInfo, group: str = "g") -> Any:
    request = m.CommitOffsetsRequest(
        group_id=group, incarnation=0, coordinator_epoch=-1, generation=-1, number=0, offsets=offsets
    )
    return scene.commit(request)


def at(tp: TopicPartition, offset: int, **more: Any) -> m.OffsetInfo:
    return m.OffsetInfo(topic=tp.topic, partition=tp.partition, offset=offset, **({"leader_epoch": -1} | more))


# -- what pings bring ------------------------------------------------------------------------------------------------------


@requirement("The interval of offset commits is a setting")
@requirement("Offsets in a ping answer are recorded and stored later")
def test_what_a_ping_brings_is_stored_by_the_committer_at_its_interval() -> None:
    scene = Scene()
    (a,) = scene.join("a")
    a.positions = dict.fromkeys(a.owned, 5)
    a.answer_ping()
    scene.run(0.99)
    assert not scene.offsets["g"]
    scene.run(0.02)
    assert scene.offsets["g"] == dict.fromkeys(tps("t", 0, 1, 2, 3), Committed(5))


@requirement("The interval of offset commits is a setting")
@requirement("A committer writes reported offsets periodically")
def test_every_group_is_written_once_in_each_interval() -> None:
    scene = Scene()
    members = [*scene.join("a"), *scene.join("b", group="h")]
    for offset in (5, 9):
        before = len(scene.writes)
        for each in members:
            each.positions = dict.fromkeys(each.owned, offset)
            each.answer_ping()
        scene.run(1.0)
        assert all(set(scene.offsets[group].values()) == {Committed(offset)} for group in "gh")
        assert sorted(each.group_id for each in scene.writes[before:]) == ["g", "h"]


@requirement("A group without new offsets is not written again")
def test_a_group_without_news_is_not_written_again() -> None:
    scene = Scene()
    (a,) = scene.join("a")
    a.positions = dict.fromkeys(a.owned, 5)
    scene.run(10.0)
    count = len(scene.writes)
    scene.run(30.0)
    assert len(a.bodies(m.PingRequest)) > 8 and len(scene.writes) == count


@requirement("A group without new offsets is not written again")
def test_a_group_is_marked_until_its_offsets_are_stored() -> None:
    scene = Scene()
    (a,) = scene.join("a")
    (b,) = scene.join("b", group="h")
    a.positions = b.positions = dict.fromkeys(a.owned, 5)
    scene.run(10.0)
    scene.holds_writes = True
    group = scene.machine.groups["g"]
    for offset in (6, 7):
        a.positions = dict.fromkeys(a.owned, offset)
        a.answer_ping()
        scene.run(1.1)
        assert [each.group_id for each in scene.held] == ["g"], "the other group has no news"
        assert group.reported == dict.fromkeys(a.owned, Committed(offset))
    scene.carry_out()
    assert group.reported == dict.fromkeys(a.owned, Committed(7)), "this came during the write"
    scene.holds_writes = False
    scene.run(1.1)
    assert scene.offsets["g"] == dict.fromkeys(a.owned, Committed(7)) and not group.reported


@requirement("Committed offsets never move back and leave no gap")
@requirement("Offsets count only from the owner in its generation")
def test_find_10_mut_17_offsets_count_from_the_owner_in_its_generation_only() -> None:
    scene = Scene()
    a, _b = scene.join("a", "b")
    a.positions = dict.fromkeys(tps("t", 0, 1, 2, 3), 9)
    a.owned |= tps("t", 2, 3)
    a.answer_ping()
    scene.run(1.1)
    assert set(scene.offsets["g"]) == tps("t", 0, 1), "the others are b's"
    a.generation -= 1
    a.positions = dict.fromkeys(a.positions, 10)
    a.answer_ping()
    scene.run(1.1)
    assert scene.offsets["g"][T0] == Committed(9)
    assert fx.Refused("ping", E.ILLEGAL_GENERATION) in scene.effects


@requirement("Committed offsets never move back and leave no gap")
def test_mut_17_a_stop_answer_counts_if_it_is_of_the_generation_that_was_started_last() -> None:
    """The finding of the abstract model: an evicted owner that is owner again may answer with what it held long ago."""
    scene = Scene()
    _a, b = scene.join("a", "b")
    b.answers.discard("stop")
    c = scene.consumer("c").register()
    scene.run(0.2)
    b.positions = dict.fromkeys(b.owned, 7)
    b.answer_stop(b.bodies(m.StopFetcherRequest)[0], started_generation=b.generation - 1)
    scene.run(1.0)
    assert not scene.offsets["g"] and c.positions == {TopicPartition("t", 3): 0}


def test_find_10_a_member_that_has_started_nothing_stops_without_an_offset() -> None:
    scene = Scene()
    (a,) = scene.join("a")
    by_start = {"start"}
    b = scene.consumer("b")
    b.answers -= by_start
    b.register()
    scene.run(0.3)
    a.positions = dict.fromkeys(a.owned, 5)
    a.answer_ping()
    scene.run(1.1)
    stored = dict(scene.offsets["g"])
    a.leave()  # the next attempt begins while b's start is unanswered
    scene.run(12.0)
    assert {tp: scene.offsets["g"][tp] for tp in stored} == stored


@requirement("A group keeps the newest offset of each partition")
@requirement("Committed offsets never move back and leave no gap")
def test_an_overtaken_report_does_not_take_an_offset_back() -> None:
    scene = Scene()
    (a,) = scene.join("a")
    a.positions = dict.fromkeys(a.owned, 9)
    late_number = a.number + 1
    a.number += 1
    a.answer_ping()
    scene.run(1.1)
    token = a.commit(4, T0, number=late_number)
    assert codes(scene, token) == [E.NONE, E.NONE] and scene.offsets["g"][T0] == Committed(9)


@requirement("Committed offsets never move back and leave no gap")
def test_a_ping_that_a_newer_commit_has_overtaken_does_not_take_an_offset_back() -> None:
    scene = Scene()
    (a,) = scene.join("a")
    ping_number = a.number
    a.number += 1
    a.commit(9, T0)
    a.positions = dict.fromkeys(a.owned, 4)
    a.number = ping_number
    a.answer_ping()
    scene.run(1.1)
    assert (scene.offsets["g"][T0], scene.offsets["g"][T1]) == (Committed(9), Committed(4))


@requirement("Committed offsets never move back and leave no gap")
def test_a_commit_that_is_newer_than_a_report_on_its_way_to_the_store_wins() -> None:
    scene = Scene()
    (a,) = scene.join("a")
    scene.holds_writes = True
    a.positions = dict.fromkeys(a.owned, 5)
    a.answer_ping()
    scene.run(1.1)
    a.positions[T0] = 9
    a.commit(9, T0)
    while scene.held:
        scene.carry_out()
    assert scene.offsets["g"][T0] == Committed(9) and scene.offsets["g"][T1] == Committed(5)


# -- active commits --------------------------------------------------------------------------------------------------------


def test_open_01_coord_12_an_active_commit_is_answered_when_it_is_stored() -> None:
    scene = Scene(holds_writes=False)
    (a,) = scene.join("a")
    scene.holds_writes = True
    token = a.commit(5, T0, T1)
    assert token not in scene.replies
    scene.carry_out()
    assert codes(scene, token) == [E.NONE, E.NONE, E.NONE]
    assert scene.offsets["g"] == {T0: Committed(5), T1: Committed(5)}


def test_commits_that_come_during_a_write_share_the_next_one() -> None:
    scene = Scene()
    (a,) = scene.join("a")
    scene.holds_writes = True
    tokens = [a.commit(offset, T0) for offset in range(1, 30)]
    count = len(scene.writes)
    scene.carry_out()
    scene.carry_out()
    assert all(codes(scene, token) == [E.NONE, E.NONE] for token in tokens)
    assert scene.offsets["g"][T0] == Committed(29) and len(scene.writes) == count + 2


@requirement("Committed offsets never move back and leave no gap")
def test_a_member_may_commit_a_lower_offset_than_before_by_itself() -> None:
    scene = Scene()
    (a,) = scene.join("a")
    a.commit(50, T0)
    a.commit(20, T0, T1)
    assert scene.offsets["g"][T0] == Committed(20)


FENCED = [
    ({"generation": 0}, E.ILLEGAL_GENERATION),
    ({"generation": 99}, E.ILLEGAL_GENERATION),
    ({"generation": -1}, E.ILLEGAL_GENERATION),
    ({"generation": 2**31 - 1}, E.ILLEGAL_GENERATION),
    ({"coordinator_epoch": -1}, E.ILLEGAL_GENERATION),
    ({"coordinator_epoch": 2**31 - 1}, E.ILLEGAL_GENERATION),
    ({"coordinator_epoch": 6}, E.ILLEGAL_GENERATION),
    ({"coordinator_epoch": 8}, E.ILLEGAL_GENERATION),
    ({"consumer_id": "stranger"}, E.UNKNOWN_MEMBER_ID),
    ({"incarnation": 99}, E.UNKNOWN_MEMBER_ID),
    ({"incarnation": -(2**63)}, E.UNKNOWN_MEMBER_ID),
    ({"group_id": "other"}, E.UNKNOWN_MEMBER_ID),
    ({"consumer_id": "", "generation": -1}, E.NON_EMPTY_GROUP),
    ({"consumer_id": ""}, E.UNKNOWN_MEMBER_ID),
    ({"offsets": (at(T0, 5), at(T0, 6))}, E.INVALID_REQUEST),
    ({"consumer_id": "a\n"}, E.INVALID_REQUEST),
    ({"consumer_id": "x" * 1_000_000}, E.INVALID_REQUEST),
    ({"number": 0}, E.INVALID_REQUEST),
    ({"number": -(2**63)}, E.INVALID_REQUEST),
]


@requirement("Every coordinator error has a code and a consumer reaction")
@pytest.mark.parametrize(("change", "code"), FENCED, ids=lambda each: str(each)[:60])
def test_coord_01_a_commit_that_is_not_of_a_member_as_it_is_now_is_refused(change: dict[str, Any], code: E) -> None:
    scene = Scene()
    (a,) = scene.join("a")
    token = a.commit(5, T0, **change)
    assert answer(scene, token).error_code is code and 0 < len(answer(scene, token).error_message) < 1000
    assert not scene.offsets["g"] and list(scene.machine.groups) == ["g"]
    assert codes(scene, a.commit(5, T0)) == [E.NONE, E.NONE]


EACH = [
    (at(TopicPartition("t", 3), 5), E.ILLEGAL_GENERATION),
    (at(T0, -1), E.INVALID_REQUEST),
    (at(T0, -(2**63)), E.INVALID_REQUEST),
    (at(T0, 5, metadata="x" * 4097), E.OFFSET_METADATA_TOO_LARGE),
    (at(T0, 5, metadata="я" * 2049), E.OFFSET_METADATA_TOO_LARGE),
    (at(TopicPartition("t", 4), 5), E.UNKNOWN_TOPIC_OR_PARTITION),
    (at(TopicPartition("t", -1), 5), E.UNKNOWN_TOPIC_OR_PARTITION),
    (at(TopicPartition("t", 2**31 - 1), 5), E.UNKNOWN_TOPIC_OR_PARTITION),
    (at(TopicPartition("nowhere", 0), 5), E.UNKNOWN_TOPIC_OR_PARTITION),
    (at(T0, 5, leader_epoch=-2), E.INVALID_REQUEST),
    (at(T0, 1001), E.OFFSET_OUT_OF_RANGE),
    (at(T0, 2**63 - 1), E.OFFSET_OUT_OF_RANGE),
]


@pytest.mark.parametrize(("offset", "code"), EACH, ids=str)
def test_a_commit_for_what_is_not_owned_or_cannot_be_is_refused_by_partition(offset: m.OffsetInfo, code: E) -> None:
    scene = Scene(log_end=1000)
    a, _b = scene.join("a", "b")
    token = a.commit(0, offsets=(offset, at(T1, 1000)))
    assert codes(scene, token) == [E.NONE, code, E.NONE]
    assert f"{offset.topic}-{offset.partition}" in answer(scene, token).results[0].error_message
    assert scene.offsets["g"] == {T1: Committed(1000)}


@pytest.mark.parametrize(("offset", "code"), EACH[1:], ids=str)
def test_a_commit_by_hand_for_what_cannot_be_is_refused(offset: m.OffsetInfo, code: E) -> None:
    scene = Scene(log_end=1000)
    token = by_hand(scene, offset, at(T1, 1000), group="fresh")
    assert codes(scene, token) == [E.NONE, code, E.NONE]
    assert scene.offsets["fresh"] == {T1: Committed(1000)}


@pytest.mark.parametrize("topic", ["", "..", "a/b", "тема", "x" * 1_000_000], ids=lambda each: each[:10])
def test_a_commit_for_a_topic_that_cannot_be_says_so_and_does_not_echo_it(topic: str) -> None:
    scene = Scene()
    (a,) = scene.join("a")
    token = a.commit(0, offsets=(at(TopicPartition(topic, 0), 5), at(T1, 5)))
    assert codes(scene, token) == [E.NONE, E.INVALID_TOPIC_EXCEPTION, E.NONE]
    assert len(answer(scene, token).results[0].error_message) < 1000
    token = by_hand(scene, at(TopicPartition(topic, 0), 5), group="fresh")
    assert codes(scene, token) == [E.NONE, E.INVALID_TOPIC_EXCEPTION]


def test_an_offset_beyond_the_log_in_a_ping_is_dropped() -> None:
    scene = Scene(log_end=1000)
    (a,) = scene.join("a")
    a.positions = {T0: 1001, T1: 1000, T2: 0, TopicPartition("t", 3): 0}
    a.answer_ping()
    scene.run(1.1)
    assert scene.offsets["g"] == {T1: Committed(1000)}
    assert fx.Refused("offset", E.OFFSET_OUT_OF_RANGE) in scene.effects


def test_a_leader_that_cannot_be_asked_hinders_no_commit() -> None:
    scene = Scene(log_end=None)
    (a,) = scene.join("a")
    assert codes(scene, a.commit(5, T0)) == [E.NONE, E.NONE]
    a.positions = {T0: 6, T1: 7, T2: 0, TopicPartition("t", 3): 0}
    scene.run(10.0)
    assert scene.offsets["g"] == {T0: Committed(6), T1: Committed(7)}


class Slow(Scene):
    """The leaders answer when they are told to."""

    def _do(self, effect: fx.Effect) -> None:
        if isinstance(effect, fx.FindEnds):
            self.questions.append(effect)
        else:
            super()._do(effect)

    @property
    def questions(self) -> list[fx.FindEnds]:
        found: list[fx.FindEnds] = self.__dict__.setdefault("_questions", [])
        return found

    def tell(self, end: int) -> None:
        self.step(ev.EndsFound(dict.fromkeys(self.questions.pop(0).partitions, end)))


@requirement("Committed offsets never move back and leave no gap")
def test_coord_11_a_commit_that_waits_for_a_log_end_is_fenced_again() -> None:
    scene = Slow()
    _a, b = scene.join("a", "b")
    tp = TopicPartition("t", 3)
    waiting = b.commit(5, tp)
    scene.consumer("c").register()
    scene.run(0.2)
    assert tp not in b.owned, "it has been stopped meanwhile"
    scene.tell(1000)
    assert codes(scene, waiting) == [E.ILLEGAL_GENERATION]
    assert tp not in scene.offsets["g"]


@requirement("A failed attempt is marked and checked after each wait")
def test_a_failed_attempt_that_awaits_log_ends_stores_nothing() -> None:
    scene = Slow()
    _a, b = scene.join("a", "b")
    b.positions = dict.fromkeys(b.owned, 5)
    c = scene.consumer("c").register()
    scene.run(0.2)
    assert scene.questions and not b.owned & tps("t", 3)
    c.lose_connection()
    before = len(scene.writes)
    scene.tell(1000)
    assert len(scene.writes) == before and scene.of(fx.Rebalanced)[-1].failed


@requirement("Committed offsets never move back and leave no gap")
def test_a_commit_wins_over_an_older_report_that_waits_for_a_log_end() -> None:
    scene = Slow()
    (a,) = scene.join("a")
    a.commit(9, T0)
    scene.tell(1000)
    a.positions = dict.fromkeys(tps("t", 0, 1, 2, 3), 1500)
    a.answer_ping()
    a.answers.clear()
    scene.run(1.1)
    assert scene.questions, "nobody knows yet whether the logs reach so far"
    a.commit(20, T0)
    scene.tell(2000)
    assert (scene.offsets["g"][T0], scene.offsets["g"][T1]) == (Committed(20), Committed(1500))


@requirement("Committed offsets never move back and leave no gap")
def test_nor_is_that_report_stored_behind_the_commit_when_another_one_has_followed() -> None:
    scene = Slow()
    (a,) = scene.join("a")
    a.commit(30, T0)
    scene.tell(100)
    a.positions = {T0: 40, T1: 150, **dict.fromkeys(tps("t", 2, 3), 0)}
    a.answer_ping()
    a.answers.clear()
    scene.run(1.1)
    assert scene.questions, "nobody knows yet whether the log of T1 reaches so far"
    a.commit(50, T0)
    a.positions[T0] = 60
    a.answer_ping()
    before = len(scene.writes)
    scene.tell(200)
    assert [each.offsets.get(T0, Committed(60)) for each in scene.writes[before:]] == [Committed(60)]
    scene.run(1.1)
    assert (scene.offsets["g"][T0], scene.offsets["g"][T1]) == (Committed(60), Committed(150))


@requirement("Committed offsets never move back and leave no gap")
def test_what_is_set_by_hand_is_not_overwritten_by_the_last_words_of_who_was_there() -> None:
    scene = Slow()
    (a,) = scene.join("a")
    a.commit(5, T0)
    scene.tell(100)
    a.positions = {T0: 9, T1: 150, **dict.fromkeys(tps("t", 2, 3), 0)}
    a.answer_ping()
    a.answers.clear()
    a.lose_connection()
    scene.run(1.1)
    assert scene.questions
    scene.run(20.0)
    assert scene.state() == "Empty"
    token = by_hand(scene, at(T0, 2))
    scene.tell(200)
    assert codes(scene, token) == [E.NONE, E.NONE] and scene.offsets["g"][T0] == Committed(2)


@requirement("Committed offsets never move back and leave no gap")
def test_who_goes_back_to_what_is_stored_while_more_is_being_stored_is_heard() -> None:
    scene = Scene()
    (a,) = scene.join("a")
    a.commit(10, T0)
    scene.holds_writes = True
    a.commit(15, T0)
    a.positions = {T0: 10, **dict.fromkeys(tps("t", 1, 2, 3), 0)}
    a.answer_ping()
    scene.holds_writes = False
    scene.carry_out()
    scene.run(1.1)
    assert scene.offsets["g"][T0] == Committed(10)


def test_log_ends_are_asked_for_by_one_question_at_a_time_for_everybody_who_waits() -> None:
    scene = Slow()
    (a,) = scene.join("a")
    tokens = [a.commit(offset, T0) for offset in (5, 6, 7)]
    assert len(scene.questions) == 1
    scene.tell(6)
    assert codes(scene, tokens[0]) == [E.NONE, E.NONE] and tokens[1] not in scene.replies
    assert len(scene.questions) == 1
    scene.tell(6)
    assert codes(scene, tokens[1]) == [E.NONE, E.NONE] and codes(scene, tokens[2]) == [E.NONE, E.OFFSET_OUT_OF_RANGE]


def test_log_ends_that_were_found_for_somebody_else_judge_no_commit() -> None:
    """A term that finishes asks for those of what was reported; a commit of something else may wait for its own."""
    scene = Slow()
    (a,) = scene.join("a")
    token = a.commit(5, T0)
    scene.step(ev.EndsFound({T1: 1000}))
    assert token not in scene.replies
    scene.tell(1000)
    assert codes(scene, token) == [E.NONE, E.NONE]


def test_coord_11_from_its_stop_to_its_start_a_partition_cannot_be_committed() -> None:
    scene = Scene()
    _a, b = scene.join("a", "b")
    tp = TopicPartition("t", 3)
    scene.holds_writes = True
    b.answers.discard("start")
    scene.consumer("c").register()
    scene.run(0.2)
    assert codes(scene, b.commit(5, tp)) == [E.NONE, E.REBALANCE_IN_PROGRESS], "stopped, and not stored yet"
    scene.holds_writes = False
    scene.carry_out()
    kept = TopicPartition("t", 2)
    assert codes(scene, b.commit(5, kept)) == [E.REBALANCE_IN_PROGRESS], "its start is on its way: again after it"
    b.answer_start(b.bodies(m.StartFetcherRequest)[-1])
    assert codes(scene, b.commit(5, kept)) == [E.NONE, E.NONE]


# -- offsets of groups without members -------------------------------------------------------------------------------------


@requirement("Committed offsets never move back and leave no gap")
@requirement("The first registration of a group creates its registry")
def test_offsets_are_set_by_hand_while_nobody_is_there() -> None:
    scene = Scene()
    token = by_hand(scene, at(T0, 7), at(TopicPartition("x", 0), 1), group="fresh")
    assert codes(scene, token) == [E.NONE, E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION]
    assert scene.offsets["fresh"] == {T0: Committed(7)} and scene.heads["fresh"].empty_since_ms == scene.wall_ms
    (a,) = scene.join("a", group="fresh")
    assert a.positions[T0] == 7 and a.positions[T1] == 0


def test_a_reset_of_which_nothing_is_accepted_makes_no_group() -> None:
    scene = Scene()
    by_hand(scene, at(TopicPartition("x", 0), 1), group="fresh")
    assert not scene.machine.groups and not scene.writes


def test_what_is_stored_can_be_asked_for() -> None:
    scene = Scene()
    (a,) = scene.join("a")
    a.commit(5, T0)
    asked = m.FetchOffsetsRequest(
        group_id="g", partitions=(m.PartitionName(topic="t", partition=0), m.PartitionName(topic="t", partition=1))
    )
    assert [each.offset for each in scene.machine.fetch_offsets(asked).offsets] == [5, -1]
    assert [each.offset for each in scene.machine.fetch_offsets(m.FetchOffsetsRequest(group_id="g")).offsets] == [5]
    assert not scene.machine.fetch_offsets(m.FetchOffsetsRequest(group_id="none")).offsets


@requirement("A broker that stops closes its electors first")
def test_at_an_orderly_end_the_committer_stores_what_it_has() -> None:
    scene = Scene()
    (a,) = scene.join("a")
    a.commit(1000, *a.owned)  # the log ends are known from here on
    a.positions = dict.fromkeys(a.owned, 500)
    scene.machine._desk.ends.update(dict.fromkeys(a.owned, 1000))
    a.answer_ping()
    (write,) = scene.machine.shutdown()
    assert isinstance(write, fx.Write) and set(write.offsets.values()) == {Committed(500)}


@requirement("A start request names the newest offsets of its group")
@requirement("Committed offsets never move back and leave no gap")
@pytest.mark.parametrize("how", ["reported", "on its way to the store", "committed actively"])
def test_a_member_that_returns_is_given_what_it_said_last_although_that_is_not_stored_yet(how: str) -> None:
    """Its lease may end before this Start arrives: it would begin at the stored offset, and then report less than is stored."""
    scene = Scene()
    (a,) = scene.join("a")
    a.positions = dict.fromkeys(a.owned, 5)
    scene.run(5.0)
    a.positions, scene.holds_writes = dict.fromkeys(a.owned, 9), True
    if how == "committed actively":
        a.commit(9)
    else:
        a.answer_ping()
        if how != "reported":
            scene.run(2.0, lambda: bool(scene.held))
    assert {each.offset for each in scene.offsets["g"].values()} == {5}
    a.reconnect()
    (start,) = a.bodies(m.StartFetcherRequest)[-1:]
    assert {part.offset for each in start.ownership_info for part in each.assigned_parts} == {9}


def test_commits_for_a_group_that_is_deleted_and_made_anew_are_answered() -> None:
    scene = Scene(holds_writes=True)
    first = by_hand(scene, at(T0, 1))
    waiting = by_hand(scene, at(T0, 2))
    scene.delete("g")
    assert codes(scene, waiting) == [E.GROUP_ID_NOT_FOUND]
    anew = by_hand(scene, at(T0, 3))
    scene.carry_out()
    assert codes(scene, first) == codes(scene, anew) == [E.NONE, E.NONE]
    assert scene.machine.groups["g"].offsets == scene.offsets["g"] == {T0: Committed(3)}
    scene.holds_writes = False
    assert codes(scene, by_hand(scene, at(T0, 4))) == [E.NONE, E.NONE]


@requirement("A topic id separates topics that share a name")
def test_offsets_of_a_topic_that_is_gone_do_not_come_back_with_the_writes_that_were_under_way() -> None:
    scene = Scene()
    (a,) = scene.join("a")
    scene.holds_writes = True
    a.commit(1000, T0)
    a.commit(1005, T0)
    scene.change_topics(t=0)
    while scene.held:
        scene.carry_out()
    assert not scene.offsets["g"] and not scene.machine.groups["g"].offsets
    scene.holds_writes = False
    scene.change_topics(ids={"t": b"another"}, t=1)
    scene.run(1.0)
    assert a.owned == {T0} and a.positions[T0] == 0
