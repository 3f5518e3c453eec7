"""Why a log refuses to serve: what may be done about it depends on it."""

import errno
from enum import Enum
from typing import Final

_NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class Trouble(Enum):
    NO_SPACE = "the disk is full; what the log holds is whole"
    IO = "a call to the disk failed"
    SYNC = "a sync failed: what came after the last good one may be in memory only, and no later sync would tell"
    DAMAGE = "the log is not what it was"


def no_space(error: OSError) -> bool:
    """Full, over a quota, or over a limit of file size: waiting may help."""
    return error.errno in _NO_SPACE


def trouble_of(doing: str, error: OSError) -> Trouble:
    """`doing` "sync" is special whatever the error says: with delayed allocation a full disk shows there (row 29)."""
    if doing == "sync":
        return Trouble.SYNC
    return Trouble.NO_SPACE if no_space(error) else Trouble.IO
