"""Settings of the unit tests."""

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def _no_sync() -> Iterator[None]:
    """Nothing waits for the disk of this machine: no test cuts its power. What is synced is the simulated disk's to say."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("fsync", "fdatasync"):
            patch.setattr(os, name, os.fstat)  # a bad descriptor is an error all the same
        yield
