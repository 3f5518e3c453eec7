"""Protocol events of writes that elect a process, and of those by which it resigns."""

from tidelog.ports.meta import Meta
from tidelog.ports.recorder import Cause, Recorder, Znode
from tidelog.runtime import zk_patterns
from tidelog.runtime.zk_patterns import Elected
from tidelog.wire import messages as m
from tidelog.wire import znodes


def record_election(recorder: Recorder, path: str, epoch_path: str, elected: Elected, purpose: str) -> Cause | None:
    """Records the multi by which this process has made the ephemeral `path` and raised the epoch at `epoch_path`."""
    version = elected.epoch_version
    changes = (
        m.ZnodeChange(path=path, version_before=znodes.NO_VERSION, version=elected.version),
        m.ZnodeChange(path=epoch_path, version_before=version - 1, version=version),
    )
    written = m.StoreWritten(changes=changes, more=0, result="written", purpose=purpose)
    return recorder.record(None, written, Znode(path, znodes.NO_VERSION))


async def resign(meta: Meta, path: str, recorder: Recorder, cause: Cause | None = None) -> None:
    """Deletes the ephemeral `path`, if it is of this session."""
    version = await zk_patterns.resign(meta, path)
    if version != znodes.NO_VERSION:
        change = m.ZnodeChange(path=path, version_before=version, version=znodes.NO_VERSION)
        written = m.StoreWritten(changes=(change,), more=0, result="written", purpose="resignation")
        recorder.record(None, written, cause)
