"""Brokers of ours that take records and keep nothing, as librdkafka's mock cluster does. `python -m bench.mock_broker`.

Prints its ports. They lead the partitions of any topic that is asked for, in turn, give producer ids, and acknowledge each batch
on ProduceStream as soon as its header is read. Same event loop, same library and same limits as our own servers.
"""

import asyncio
import sys
from collections import Counter
from typing import Any, Final

from tidelog.ids import Address
from tidelog.ports.net import CallContext, Route, Server
from tidelog.runtime import loop
from tidelog.runtime.rpc_net import GrpcNet
from tidelog.wire import messages as m
from tidelog.wire.batch import read_header
from tidelog.wire.services import (
    COORDINATOR_SERVICE_CLUSTER_METADATA,
    REPLICA_SERVICE_INIT_PRODUCER_ID,
    REPLICA_SERVICE_PRODUCE_STREAM,
)

BROKERS: Final = 3
PARTITIONS: Final = 4
"""Of a topic, as librdkafka's mock cluster makes them by itself."""
EPOCH: Final = 1


class MockCluster:
    def __init__(self) -> None:
        self.addresses: list[Address] = []
        self._ends: Counter[tuple[str, int]] = Counter()
        self._producer_ids = 0

    def routes(self) -> list[Route]:
        return [
            Route(COORDINATOR_SERVICE_CLUSTER_METADATA, self.metadata),
            Route(REPLICA_SERVICE_INIT_PRODUCER_ID, self.init_producer_id),
            Route(REPLICA_SERVICE_PRODUCE_STREAM, self.produce_stream),
        ]

    async def metadata(self, request: m.ClusterMetadataRequest, _: CallContext) -> m.ClusterMetadataResponse:
        partitions = tuple(
            m.PartitionMetadata(partition=p, leader=p % BROKERS, leader_epoch=EPOCH, replicas=(0,), isr=(0,))
            for p in range(PARTITIONS)
        )
        return m.ClusterMetadataResponse(
            coordinator_id=0,
            controller_id=0,
            brokers_info=tuple(m.BrokerInfo(id=i, host=a.host, port=a.port) for i, a in enumerate(self.addresses)),
            topics=tuple(
                m.TopicMetadata(topic=name, topic_id=name.encode().ljust(16)[:16], partitions=partitions)
                for name in request.topics
            ),
        )

    async def init_producer_id(self, _request: m.InitProducerIdRequest, _: CallContext) -> m.InitProducerIdResponse:
        self._producer_ids += 1
        return m.InitProducerIdResponse(producer_id=self._producer_ids, producer_epoch=0)

    async def produce_stream(self, stream: Any, _: CallContext) -> None:
        number = 0
        while (request := await stream.read()) is not None:
            number += 1
            response = m.ProduceResponse(results=tuple(self._result(each) for each in request.partitions))
            await stream.write(m.ProduceAnswers(answers=(m.ProduceAnswer(number=number, response=response),)))

    def _result(self, produced: m.ProducePartition) -> m.ProduceResult:
        key = (produced.topic, produced.partition)
        base_offset = self._ends[key]
        self._ends[key] += read_header(produced.records).record_count
        return m.ProduceResult(
            topic=produced.topic,
            partition=produced.partition,
            base_offset=base_offset,
            log_start_offset=0,
            leader_id=-1,
            leader_epoch=EPOCH,
            isr_size=1,
        )


async def serve() -> None:
    net, cluster = GrpcNet(), MockCluster()
    servers: list[Server] = [await net.serve(Address("127.0.0.1", 0), cluster.routes()) for _ in range(BROKERS)]
    cluster.addresses = [server.address for server in servers]
    print(",".join(map(str, cluster.addresses)), flush=True)
    # Ends with the process that started it, whose pipe this is.
    await asyncio.to_thread(sys.stdin.buffer.read)
    for server in servers:
        await server.stop(0.0)


if __name__ == "__main__":
    loop.run(serve())
