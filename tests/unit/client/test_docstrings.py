"""The documentation that `help(Producer)` and its like show."""

import inspect
import re

import pytest

from tidelog import errors
from tidelog.client import errors as client_errors
from tidelog.client.admin import Admin
from tidelog.client.consumer import Consumer
from tidelog.client.group_admin import GroupAdmin
from tidelog.client.log_admin import LogAdmin
from tidelog.client.producer import Producer
from tidelog.client.reassignments import ReassignmentAdmin
from tidelog.client.sync import SyncAdmin, SyncConsumer, SyncProducer

CLIENTS = [Admin, Consumer, Producer, SyncAdmin, SyncConsumer, SyncProducer]
PARTS = [GroupAdmin, LogAdmin, ReassignmentAdmin]
CALLS = [
    (kind, name)
    for kind in [*CLIENTS, *PARTS]
    for name, member in inspect.getmembers(kind)
    if not name.startswith("_") and (callable(member) or isinstance(member, property))
]
ERROR = re.compile(r"\b[A-Z][A-Za-z]+(?:Error|Closed|Unreachable)\b")
BUILT_IN = {"TypeError", "ValueError", "KeyError", "RuntimeError"}
PRIVATE_NUMBER = re.compile(r"\b(?!KIP-)[A-Z]+-\d+\b|\b[A-Z]\d+\.\d+\b|\bUNKNOWN_[A-Z_]+|\b[A-Z]+_[A-Z_]{4,}")


@pytest.mark.parametrize("kind", CLIENTS, ids=lambda kind: kind.__name__)
def test_each_parameter_is_explained(kind: type) -> None:
    said = f"{inspect.getdoc(kind)}\n{inspect.getdoc(kind.__init__)}"  # type: ignore[misc]
    explained = re.findall(r"^ *(\w+): ", said, re.MULTILINE)
    assert explained == [name for name in inspect.signature(kind).parameters]


@pytest.mark.parametrize(("kind", "name"), CALLS, ids=[f"{kind.__name__}.{name}" for kind, name in CALLS])
def test_each_call_has_a_docstring_that_names_classes_of_errors(kind: type, name: str) -> None:
    said = inspect.getdoc(getattr(kind, name)) or ""
    assert said.endswith(".")
    for error in set(ERROR.findall(said)) - BUILT_IN:
        assert hasattr(errors, error) or hasattr(client_errors, error), error
    assert not PRIVATE_NUMBER.findall(said.replace("HIGH_WATERMARK", "").replace("MAX_TIMESTAMP", ""))
