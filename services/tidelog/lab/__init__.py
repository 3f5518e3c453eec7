"""The lab: a whole cluster of the real code in one Python process, in virtual time, that a reader may break by hand.

`Lab` is imported at its first use, so that the list of lessons costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.lab.lab import Lab, LabError

__all__ = ("Lab", "LabError")


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'tidelog.lab' has no attribute {name!r}")
    found = getattr(import_module("tidelog.lab.lab"), name)
    globals()[name] = found
    return found
