"""The ports of one process, handed over as one value where a process is built."""

from dataclasses import dataclass

from tidelog.ports.authorizer import ALLOW_EVERYTHING, Authorizer
from tidelog.ports.clock import Clock
from tidelog.ports.disk import Disk
from tidelog.ports.meta import Meta
from tidelog.ports.net import Net
from tidelog.ports.rand import Rand
from tidelog.ports.recorder import SILENT, Recorder
from tidelog.ports.worker import Worker


@dataclass(frozen=True, slots=True)
class Ports:
    clock: Clock
    net: Net
    disk: Disk
    meta: Meta
    rand: Rand
    authorizer: Authorizer = ALLOW_EVERYTHING
    coordinator_meta: Meta | None = None
    """Of a broker: a session of its own for the coordinator of groups (A19.14). None: it coordinates none."""
    recorder: Recorder = SILENT
    """Records the protocol events of this process."""
    worker: Worker | None = None
    """Of a broker, for what would hold up its event loop. None: its logs are neither compacted nor scrubbed."""
