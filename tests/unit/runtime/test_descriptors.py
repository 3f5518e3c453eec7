"""The number of file descriptors of a process, and its parts for logs and for connections."""

import resource

import pytest

from tidelog.runtime.descriptors import RESERVED, connections_max, files_max, raise_limit


def test_a_process_takes_all_that_it_may_have() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, before[1]), before[1]))
    try:
        assert raise_limit() == resource.getrlimit(resource.RLIMIT_NOFILE)[0] == before[1]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("limit", [130, 256, 1_024, 16_384, 1 << 20, 2**31 - 1])
@pytest.mark.parametrize("listeners", [1, 2, 3])
def test_logs_and_connections_never_take_more_than_there_are(limit: int, listeners: int) -> None:
    files = files_max(limit, 2_000)
    connections = connections_max(limit, files, listeners)
    assert 1 <= files <= 2_000 and connections >= 1
    assert files + connections * listeners + RESERVED <= limit
    assert files == 2_000 or 2 * files + RESERVED >= limit - 1
