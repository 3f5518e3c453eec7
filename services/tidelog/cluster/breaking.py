"""One program at a time breaks a cluster, since the end of its fault would undo that of another."""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidelog.cluster.api import ClusterError


@contextmanager
def breaking(cluster: str) -> Iterator[None]:
    """`cluster` is the name that it gives to itself. ClusterError while another program of this user breaks it.

    The lock ends with its program, however that ends.
    """
    path = Path(tempfile.gettempdir()) / f"tidelog-breaks-{os.getuid()}-{cluster.replace('/', '-')}.lock"
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ClusterError(f"another program is breaking {cluster}: try again when it has ended") from None
        yield
