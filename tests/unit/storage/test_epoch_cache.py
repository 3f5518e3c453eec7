"""The epoch history against a slow model, and the cases that cost others their data (F-15, KIP-101, KIP-279)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.requirements import requirement
from tidelog.storage.epoch_cache import UNDEFINED_END, EpochCache, EpochEnd, EpochStart


def cache(*entries: tuple[int, int]) -> EpochCache:
    return EpochCache(EpochStart(*entry) for entry in entries)


def test_f15_2_end_offset_for() -> None:
    history = cache((2, 10), (4, 20), (7, 35))
    assert history.end_offset_for(7, 50) == EpochEnd(7, 50)
    assert history.end_offset_for(4, 50) == EpochEnd(4, 35)
    assert history.end_offset_for(6, 50) == EpochEnd(4, 35), "KIP-279: the answer carries the epoch that was found"
    assert history.end_offset_for(2, 50) == EpochEnd(2, 20)
    assert history.end_offset_for(0, 50) == EpochEnd(0, 10), "before all entries: their beginning"
    assert history.end_offset_for(8, 50) == UNDEFINED_END
    assert history.end_offset_for(-1, 50) == UNDEFINED_END
    assert cache().end_offset_for(0, 50) == UNDEFINED_END


@requirement("Every new leader epoch runs the truncation check again")
def test_kafka_7415_a_leader_that_wrote_nothing_has_an_entry() -> None:
    history = cache((1, 0))
    assert history.assign(2, 30)
    assert history.end_offset_for(2, 30) == EpochEnd(2, 30)
    assert history.end_offset_for(1, 30) == EpochEnd(1, 30)


def test_kafka_10432_epoch_zero_is_an_epoch() -> None:
    history = cache()
    assert history.latest_epoch == -1
    assert history.assign(0, 0)
    assert history.latest_epoch == 0
    assert history.end_offset_for(0, 9) == EpochEnd(0, 9)


def test_the_start_of_an_epoch_never_moves() -> None:
    history = cache((3, 10))
    assert not history.assign(3, 12)
    assert history.entries == (EpochStart(3, 10),)


def test_older_epochs_are_refused() -> None:
    with pytest.raises(ValueError, match="older"):
        cache((3, 10)).assign(2, 12)
    with pytest.raises(ValueError, match="negative"):
        cache().assign(-1, 0)
    with pytest.raises(ValueError, match="negative"):
        cache().assign(0, -1)


def test_an_epoch_without_records_leaves_no_entry_behind() -> None:
    history = cache((1, 0), (2, 10), (3, 10), (4, 10))
    assert history.entries == (EpochStart(1, 0), EpochStart(4, 10))
    assert history.end_offset_for(3, 20) == EpochEnd(1, 10)


@pytest.mark.parametrize(
    ("end", "left"), [(0, 0), (10, 0), (11, 1), (19, 1), (20, 1), (21, 2), (35, 2), (36, 3), (100, 3)]
)
def test_truncate_from_on_and_off_the_boundaries(end: int, left: int) -> None:
    history = cache((2, 10), (4, 20), (7, 35))
    assert history.truncate_from(end) is (left < 3)
    assert len(history.entries) == left


def test_epoch_at() -> None:
    history = cache((2, 10), (4, 20))
    assert [history.epoch_at(offset) for offset in (9, 10, 19, 20, 99)] == [-1, 2, 2, 4, 4]


def test_merged_trusts_batches_above_and_the_journal_below() -> None:
    journal = cache((1, 0), (2, 10), (5, 60), (9, 80))
    assert journal.merged(0, [EpochStart(1, 0), EpochStart(3, 50)], 70).entries == ((1, 0), (3, 50))
    assert journal.merged(40, [EpochStart(3, 50)], 70).entries == ((1, 0), (2, 10), (3, 50))
    assert journal.merged(40, [EpochStart(2, 40)], 80).entries == ((1, 0), (2, 10), (9, 80)), "begun at the very end"
    assert journal.merged(40, [EpochStart(2, 40)], 79).entries == ((1, 0), (2, 10)), "lost with its records"


class Model:
    """The epoch of every offset, as a list; an epoch without records is only the last one."""

    def __init__(self) -> None:
        self.records: list[int] = []
        self.empty_latest: int | None = None

    @property
    def latest(self) -> int:
        return self.empty_latest if self.empty_latest is not None else (self.records[-1] if self.records else -1)

    def end_offset_for(self, epoch: int) -> EpochEnd:
        if epoch == -1 or epoch > self.latest:
            return UNDEFINED_END
        known = sorted({*self.records, self.latest})
        found = max((e for e in known if e <= epoch), default=epoch)
        return EpochEnd(found, next((i for i, e in enumerate(self.records) if e > epoch), len(self.records)))


@given(
    st.lists(st.tuples(st.sampled_from(["lead", "write", "cut"]), st.integers(0, 12)), max_size=40), st.integers(-1, 60)
)
def test_equals_the_slow_model(steps: list[tuple[str, int]], asked: int) -> None:
    history, model = EpochCache(), Model()
    for kind, n in steps:
        end = len(model.records)
        if kind == "lead":
            epoch = model.latest + 1 + n % 3
            history.assign(epoch, end)
            model.empty_latest = epoch
        elif kind == "write" and model.latest >= 0:
            model.records += [model.latest] * n
            model.empty_latest = None if n else model.empty_latest
        elif kind == "cut":
            cut = max(0, end - n)
            history.truncate_from(cut)
            del model.records[cut:]
            model.empty_latest = None
        assert history.latest_epoch == model.latest
    assert history.end_offset_for(asked, len(model.records)) == model.end_offset_for(asked)
    epochs, starts = [e for e, _ in history.entries], [s for _, s in history.entries]
    assert epochs == sorted(set(epochs)) and starts == sorted(set(starts)), "I7"
