"""The id of a cluster: made once in its ZooKeeper by whoever comes first, and from then on what every data directory carries."""

import logging

from tidelog.errors import ErrorCode, TidelogError
from tidelog.ports.meta import Create, Meta, NodeExists, OutcomeUnknown, SessionExpired
from tidelog.ports.rand import Rand
from tidelog.runtime.zk_patterns import ensure_path, find, parent
from tidelog.wire.znodes import CLUSTER_ID, decode_cluster_id, encode_cluster_id

_log = logging.getLogger(__name__)


async def ensure_cluster_id(meta: Meta, rand: Rand, expected: str) -> str:
    """Reads the id, or makes one. INVALID_CONFIG when `expected` (from settings, empty: any) is another one."""
    await ensure_path(meta, parent(CLUSTER_ID))
    while True:
        try:
            found = await find(meta, CLUSTER_ID)
            if found is not None:
                break
            await meta.multi([Create(CLUSTER_ID, encode_cluster_id(expected or rand.randbytes(16).hex()))])
        except (NodeExists, OutcomeUnknown, SessionExpired) as error:
            _log.info("cluster id: %r; reading again", error)
    cluster_id = decode_cluster_id(found[0])
    if expected and expected != cluster_id:
        raise TidelogError(
            f"cluster_id is {expected}, but this ZooKeeper holds cluster {cluster_id}: correct cluster_id or zookeeper",
            ErrorCode.INVALID_CONFIG,
        )
    return cluster_id
