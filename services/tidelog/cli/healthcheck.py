"""`tidelog healthcheck`: exit code 0 only if a process says that it serves; for containers."""

from typing import Annotated

import typer

from tidelog.cli import common
from tidelog.cli.common import CommandError


def healthcheck(
    grpc: Annotated[str, typer.Option("--grpc", metavar="HOST:PORT", help="Where the process listens.")],
    service: Annotated[str, typer.Option("--service", help="One service; default: the process as a whole.")] = "",
    timeout_ms: Annotated[int, typer.Option("--timeout-ms", min=1)] = 3000,
) -> None:
    """Ask a process over grpc's health protocol whether it serves.

    Example: tidelog healthcheck --grpc localhost:9092
    """
    from tidelog.errors import TransportError
    from tidelog.ids import Address
    from tidelog.runtime.rpc_health import health_status

    address = Address.parse(grpc)
    try:
        status = common.run(health_status(address, timeout_ms / 1000, service))
    except TransportError as error:
        raise CommandError(f"nothing answers at {address}: {error}") from None
    if status != "SERVING":
        raise CommandError(f"{address} answers {status}")
