"""Ends of the logs of live replicas, asked before one of them is elected uncleanly (KIP-966): the largest loses least.

Answers hold until the partition has a leader: without one nothing is appended. A broker that does not answer in time counts
as unknown.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tidelog.controller.events import ReplicaEnd, ReplicaEndsTold
from tidelog.controller.model import Broker, ClusterState, Partition
from tidelog.controller.outbox import Outbox
from tidelog.ids import BrokerId
from tidelog.release import LEVEL_0_3

Ends = Mapping[BrokerId, ReplicaEnd]


@dataclass(slots=True)
class _Survey:
    waiting: dict[BrokerId, int] = field(default_factory=dict)
    """Broker -> the life that was asked."""
    answers: dict[BrokerId, tuple[int, ReplicaEnd | None]] = field(default_factory=dict)


def largest(candidates: Sequence[BrokerId], ends: Ends) -> BrokerId | None:
    """The candidate with the last epoch, and in it the longest log; the first one where nothing is known."""
    known = [each for each in candidates if each in ends]
    return max(known, key=lambda each: ends[each]) if known else next(iter(candidates), None)


class SurveyDesk:
    def __init__(self, state: ClusterState, out: Outbox) -> None:
        self._state = state
        self._out = out
        self._surveys: dict[Partition, _Survey] = {}

    @property
    def possible(self) -> bool:
        """Brokers of a lower level do not know the question."""
        return self._state.feature_level >= LEVEL_0_3

    def ends(self, partition: Partition, candidates: Iterable[BrokerId]) -> Ends | None:
        """Ends of all candidates that answered; None while one of them has still to."""
        survey = self._surveys.get(partition, _Survey())
        found: dict[BrokerId, ReplicaEnd] = {}
        for each in candidates:
            life, end = survey.answers.get(each, (None, None))
            if life != self._state.brokers[each].epoch:
                return None
            if end is not None:
                found[each] = end
        return found

    def begin(self, partition: Partition, candidates: Iterable[BrokerId]) -> None:
        """Asks those that have not been asked in this life."""
        survey = self._surveys.setdefault(partition, _Survey())
        for each in candidates:
            life = self._state.brokers[each].epoch
            if survey.waiting.get(each) != life and survey.answers.get(each, (None, None))[0] != life:
                survey.waiting[each] = life
                self._out.ask_end(self._state.brokers[each], partition)

    def told(self, event: ReplicaEndsTold) -> list[Partition]:
        """Partitions whose last answer this is."""
        done = []
        for tp, topic_id in event.asked:
            partition = self._state.partition(tp)
            survey = self._surveys.get(partition) if partition is not None else None
            if partition is None or survey is None or partition.topic.topic_id != topic_id:
                continue
            if survey.waiting.get(event.broker_id) == event.broker_epoch:
                del survey.waiting[event.broker_id]
                survey.answers[event.broker_id] = event.broker_epoch, event.ends.get(tp)
                if not survey.waiting:
                    done.append(partition)
        return done

    def ended(self, broker: Broker) -> list[Partition]:
        """That life is over. Partitions that waited for its answer alone."""
        done = []
        for partition, survey in self._surveys.items():
            if survey.waiting.get(broker.broker_id) == broker.epoch:
                del survey.waiting[broker.broker_id]
                if not survey.waiting:
                    done.append(partition)
        return done

    def asking(self) -> list[Partition]:
        """Partitions with an answer to come."""
        return [partition for partition, survey in self._surveys.items() if survey.waiting]

    def pending(self, partition: Partition) -> bool:
        survey = self._surveys.get(partition)
        return survey is not None and bool(survey.waiting)

    def forget(self, partition: Partition) -> None:
        """It has a leader, or is gone."""
        self._surveys.pop(partition, None)
