"""Lines of samples.jsonl: each kind comes back as it was written, and a file that was cut off is read up to there."""

import pytest

from tidelog.chaos import samples as s

ONE_OF_EACH = (
    s.ProcessStates(t=0.1, took=0.01, states={"broker-0": "running", "controller-1": "stopped"}),
    s.Partitions(
        t=0.2,
        took=0.01,
        partitions=(
            s.PartitionState(
                topic="chaos",
                partition=0,
                leader=-1,
                leader_epoch=4,
                partition_epoch=9,
                replicas=[0, 1, 2],
                isr=[1],
                vetoed=True,
            ),
        ),
    ),
    s.BrokerLook(
        t=0.3,
        took=0.01,
        process="broker-1",
        session_expirations=1,
        replicas=(
            s.Replica(topic="chaos", partition=0, leader_epoch=4, log_start=0, high_watermark=7, log_end=9, isr_size=1),
            s.Replica(topic="chaos", partition=1, leader_epoch=2, log_start=0, high_watermark=7, log_end=7),
        ),
    ),
    s.BrokerLook(t=0.35, took=0.01, process="broker-2", session_expirations=None, replicas=()),
    s.ControllerLook(
        t=0.4, took=0.01, process="controller-1", active=True, epoch=3, elections={"x": 2}, unclean_elections=1
    ),
    s.ZooKeeperLook(t=0.5, took=0.01, process="zookeeper-1", role="standalone"),
    s.GroupLook(
        t=0.6,
        took=0.01,
        group="g",
        state="Stable",
        coordinator=1,
        coordinator_epoch=2,
        generation=3,
        members=2,
        committed=(s.Committed(topic="chaos", partition=0, offset=124),),
    ),
    s.Silent(t=0.7, took=1.0, source="broker-2", why="no answer within 1 s"),
)


def test_every_kind_comes_back_as_it_was_written():
    assert {type(each) for each in ONE_OF_EACH} == set(s.KINDS.values())
    read = s.read_lines(s.to_line(each) for each in ONE_OF_EACH)
    assert list(read.looks) == list(ONE_OF_EACH) and read.complete


def test_looks_come_in_the_order_of_their_questions():
    late, early = s.Silent(t=1.0, took=1.0, source="a", why=""), s.ZooKeeperLook(t=1.5, took=0.1, process="b", role="")
    read = s.read_lines([s.to_line(early), s.to_line(late)])
    assert [look.t for look in read.looks] == [1.0, 1.5]


@pytest.mark.parametrize("cut", [1, 10, 30])
def test_a_file_that_was_cut_off_is_read_up_to_there(cut):
    lines = [s.to_line(each) for each in ONE_OF_EACH]
    read = s.read_lines([*lines[:3], lines[3][:cut]])
    assert (list(read.looks), read.complete) == (list(ONE_OF_EACH[:3]), False)


def test_damage_in_the_middle_is_no_cut():
    lines = [s.to_line(each) for each in ONE_OF_EACH]
    with pytest.raises(ValueError, match="not a sample"):
        s.read_lines([lines[0], lines[1][:10], lines[2]])


@pytest.mark.parametrize(
    "line", ["", "[]", "7", '{"kind":"guess"}', '{"t":1}', '{"kind":"zookeeper","t":1,"took":0,"process":"z"}']
)
def test_what_is_no_sample_is_refused(line):
    with pytest.raises(ValueError):
        s.from_line(line)


def test_what_a_newer_writer_says_more_is_left_out():
    line = '{"t":1,"took":0,"kind":"zookeeper","process":"z","role":"leader","mood":"calm"}'
    assert s.from_line(line) == s.ZooKeeperLook(t=1, took=0, process="z", role="leader")


def test_no_file_at_all_is_a_run_that_ended_before_its_first_look(tmp_path):
    assert s.read_samples(tmp_path / s.FILE_NAME) == s.Samples(complete=False)
