"""The world that tests of the shells share: every process of a small cluster in virtual time."""

from collections.abc import AsyncIterator

import pytest

from unit.coordinator.shell import World, coordinator_world


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with coordinator_world() as world:
        yield world
