"""Asks a process's grpc health service; for health checks of containers, which are commands."""

from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tidelog.errors import TransportError
from tidelog.ids import Address
from tidelog.runtime.rpc_server import target


async def health_status(address: Address, timeout_s: float, service: str = "") -> str:
    """SERVING, NOT_SERVING, UNKNOWN or SERVICE_UNKNOWN; TransportError when nothing answers."""
    async with aio.insecure_channel(target(address)) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        try:
            answer = await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=timeout_s)
        except aio.AioRpcError as error:
            raise TransportError(error.code().name, error.details() or "") from None
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))
