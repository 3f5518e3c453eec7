"""One Compose cluster for all tests here; each leaves it healed. Without an engine they are skipped and say why."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.compose import ComposeProject, compose_project, why_not

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.compose)
            item.add_marker(pytest.mark.timeout(600))  # the first one builds the images
            if reason := why_not():
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComposeProject]:
    with compose_project(tmp_path_factory.mktemp("compose") / "test.env") as running:
        yield running
