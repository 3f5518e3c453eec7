"""X4: what leaders say of their high watermarks."""

from helpers.histories import Story, found, rows

LOG = ("a", "b", "c")


def read() -> Story:
    """Epoch 1 has acknowledged three records, and a consumer has read them."""
    story = Story()
    for offset, value in enumerate(LOG):
        story.sent(value, offset, epoch=1)
    return story.poll(*rows(*LOG))


def test_x4_a_watermark_that_falls_within_an_epoch() -> None:
    verdict = Story().watermark(5).watermark(4).check()
    assert found(verdict) == {"watermark-fell": 1} and not verdict.sound
    assert verdict.anomalies["watermark-fell"].examples[0].text == (
        "chaos-0: broker 1, leader of epoch 1, says at 0.020 s that its high watermark is 4; in the same epoch it was 5 before"
    )


def test_a_watermark_behind_the_end_of_the_log() -> None:
    verdict = Story().watermark(5, log_end=4).check()
    assert found(verdict) == {"watermark-ahead": 1} and not verdict.sound
    assert "says at 0.010 s that its high watermark is 5; its log ends at 4" in (
        verdict.anomalies["watermark-ahead"].examples[0].text
    )
    assert found(Story().watermark(5, log_end=5).check()) == {}


def test_without_a_report_no_watermark_is_judged() -> None:
    verdict = Story().log("a").end(rows("a")).check()
    assert "watermark-fell" not in verdict.anomalies
    assert "no leader told its high watermark: that it never falls is not judged" in verdict.notes


def test_x4_a_watermark_that_stays_or_grows_is_well() -> None:
    assert found(Story().watermark(4).watermark(4).watermark(5).check()) == {}


def test_x4_a_new_leader_may_be_behind_until_it_has_taken_over() -> None:
    assert found(read().watermark(3).watermark(2, epoch=2).watermark(3, epoch=2).check()) == {}


def test_x4_a_leader_that_has_acknowledged_is_not_below_what_was_read() -> None:
    story = read().sent("d", 3, epoch=2).watermark(2, epoch=2)
    verdict = story.check()
    assert found(verdict) == {"watermark-fell": 1}
    assert "is 2; a consumer had read up to offset 2 before" in verdict.anomalies["watermark-fell"].examples[0].text
    assert found(read().sent("d", 3, epoch=2).watermark(3, epoch=2).check()) == {}


def test_x4_an_acknowledgement_of_the_leader_alone_does_not_wait_for_the_watermark() -> None:
    assert found(read().sent("d", 3, epoch=2, acks="1").watermark(2, epoch=2).check()) == {}


def test_x4_in_the_final_phase_every_leader_has_taken_over() -> None:
    assert found(read().phase("final").watermark(2, epoch=2).check()) == {"watermark-fell": 1}
    assert found(read().watermark(2, epoch=2).phase("final").check()) == {}


def test_x4_what_was_read_after_the_leader_was_asked_says_nothing() -> None:
    def story(began: float) -> Story:
        return (
            Story()
            .sent("a", 0, epoch=1)
            .at(0.3)
            .phase("final")
            .at(1.0)
            .poll((0, "a"))
            .at(2.0)
            .watermark(0, began=began)
        )

    assert found(story(0.5).check()) == {}
    assert found(story(1.5).check()) == {"watermark-fell": 1}


def test_x4_a_leader_that_is_cut_off_knows_nothing_of_what_its_successor_serves() -> None:
    story = Story().sent("a", 0, epoch=1).poll((0, "a")).sent("b", 1, epoch=2).poll((1, "b"))
    assert found(story.watermark(1, epoch=1).check()) == {}
    assert found(story.phase("final").watermark(1, epoch=1).check()) == {}
    assert found(story.watermark(1, epoch=2).check()) == {"watermark-fell": 1}


def test_x4_two_reports_of_one_time_have_no_order() -> None:
    story = Story().at(1.0).watermark(5, began=0.5).at(1.1).watermark(4, began=0.9)
    assert found(story.check()) == {}
    assert found(Story().at(1.0).watermark(5, began=0.5).at(1.1).watermark(4, began=1.05).check()) == {
        "watermark-fell": 1
    }
