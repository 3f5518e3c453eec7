"""The one broker that is suspected at a time, and how it proves itself (design 3, Failure detection)."""

from collections.abc import Mapping
from dataclasses import dataclass

from tidelog.controller.events import StreamBroken, StreamOpened, Suspected, Tick
from tidelog.controller.model import Broker
from tidelog.ids import BrokerId


@dataclass(slots=True)
class _Suspect:
    broker_id: BrokerId
    broker_epoch: int
    stream_since: float | None = None
    """When its stream came back, if it has held since."""


class Suspicion:
    def __init__(self, hold_s: float) -> None:
        """A suspect's stream must hold `hold_s` before it is trusted again."""
        self._hold_s = hold_s
        self._suspect: _Suspect | None = None
        self.brokers: frozenset[BrokerId] = frozenset()
        """At most one: a controller that suspects everybody has lost its own network."""

    def begin(self, event: Suspected, brokers: Mapping[BrokerId, Broker]) -> bool:
        """Whether the broker is suspected from now on."""
        broker = brokers.get(event.broker_id)
        if broker is None or broker.epoch != event.broker_epoch or self._suspect is not None:
            return False
        self._set(_Suspect(event.broker_id, event.broker_epoch))
        return True

    def ended(self, broker_id: BrokerId) -> None:
        """That life of the broker is over, suspected or not."""
        if broker_id in self.brokers:
            self._set(None)

    def heard(self, event: StreamOpened | StreamBroken | Tick) -> bool:
        """Whether the suspicion is over with this."""
        suspect = self._suspect
        if suspect is None:
            return False
        match event:
            case StreamOpened(broker_id, broker_epoch, now):
                if (broker_id, broker_epoch) == (suspect.broker_id, suspect.broker_epoch):
                    suspect.stream_since = now
            case StreamBroken(broker_id, broker_epoch):
                if (broker_id, broker_epoch) == (suspect.broker_id, suspect.broker_epoch):
                    suspect.stream_since = None
            case Tick(now):
                if suspect.stream_since is not None and now - suspect.stream_since >= self._hold_s:
                    self._set(None)
                    return True
        return False

    def validate(self, brokers: Mapping[BrokerId, Broker]) -> None:
        suspect = self._suspect
        if suspect is not None:
            assert brokers[suspect.broker_id].epoch == suspect.broker_epoch, suspect

    def _set(self, suspect: _Suspect | None) -> None:
        self._suspect = suspect
        self.brokers = frozenset() if suspect is None else frozenset((suspect.broker_id,))
