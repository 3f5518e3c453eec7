"""Writes the protocol events that matter after days to the log of the process, in the words of `tidelog watch`."""

import logging

from tidelog.ports.recorder import Cause, Fields, Origin, Subject
from tidelog.values import Message
from tidelog.watch.kinds import ALARMING, LOGGED
from tidelog.watch.ring import Ring
from tidelog.watch.text import sentence_of

log = logging.getLogger(__name__)


class LoggedRing(Ring):
    def record(self, subject: Subject, fields: Fields, cause: Origin | None = None) -> Cause:
        name = super().record(subject, fields, cause)
        if type(fields) in LOGGED and isinstance(fields, Message):
            log.log(logging.WARNING if type(fields) in ALARMING else logging.INFO, "%s", sentence_of(subject, fields))
        return name
