"""The world that tests of the shells share: every process of a small cluster in virtual time."""

from collections.abc import AsyncIterator

import pytest

from unit.controller.world import World, controller_world


@pytest.fixture
async def w() -> AsyncIterator[World]:
    async with controller_world() as world:
        yield world
