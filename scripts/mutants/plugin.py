"""A pytest plugin that plants a mutant before anything is collected: `pytest -p mutants.plugin`, see `patching.MUTANT`."""

import pytest

from mutants.patching import plant_from_environment


@pytest.hookimpl(tryfirst=True)
def pytest_configure() -> None:
    plant_from_environment()
