"""The cause of a message travels beside a gRPC call as metadata, and on a stream in the message's field `cause`."""

from collections.abc import Callable, Iterable
from typing import Any, Final

from tidelog.ports.recorder import Cause, carries_cause, take_cause, with_cause
from tidelog.wire.codec import decoder, encoder

CAUSED_BY: Final = "tidelog-cause"
"""The key of the metadata that names the protocol event which led to a call, or to its answer."""


def cause_in(metadata: Iterable[tuple[str, str | bytes]] | None) -> Cause | None:
    """Returns the protocol event that metadata of a call or of an answer names."""
    for key, value in metadata or ():
        if key == CAUSED_BY and isinstance(value, str):
            return Cause.parse(value)
    return None


def stream_encoder(kind: type[Any]) -> Callable[[Any], bytes]:
    """Streams whose messages have no such field pay nothing."""
    encode = encoder(kind)
    return (lambda message: encode(with_cause(message))) if carries_cause(kind) else encode


def stream_decoder(kind: type[Any]) -> Callable[[bytes], Any]:
    """Decoding a message makes what led to it the present cause."""
    decode = decoder(kind)

    def run(data: bytes) -> Any:
        message = decode(data)
        take_cause(message)
        return message

    return run if carries_cause(kind) else decode
