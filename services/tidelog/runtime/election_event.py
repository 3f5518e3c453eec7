"""The protocol event of a write that elects a process."""

from tidelog.ports.recorder import Cause, Recorder
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
    return recorder.record(None, m.StoreWritten(changes=changes, more=0, result="written", purpose=purpose))
