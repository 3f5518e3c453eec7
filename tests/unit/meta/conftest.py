"""The simulated store that tests of this folder share."""

import random

import pytest

from tidelog.testing.meta import SimZooKeeper


@pytest.fixture
def store() -> SimZooKeeper:
    return SimZooKeeper(random.Random(1))
