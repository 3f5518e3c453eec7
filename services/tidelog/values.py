"""Values that nobody changes, made as fast as plain objects."""

from collections.abc import Callable
from dataclasses import Field, dataclass, field
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(*, kw_only: bool = False) -> Callable[[type[T]], type[T]]:
    """`@dataclass(frozen=True, slots=True)` for what is made by the hundred for each request.

    The type checker refuses an assignment to a field; at run time nothing does. A frozen dataclass sets each field of a new
    object through a call of `object.__setattr__`, which makes it three times as slow: 1.6 us against 0.6 for seven fields.
    """

    def made(cls: type[T]) -> type[T]:
        return dataclass(slots=True, unsafe_hash=True, kw_only=kw_only)(cls)

    return made


class _Fields:
    """`__dataclass_fields__` of a message, which `dataclasses.fields` and `replace` read. Made when first asked for."""

    def __get__(self, message: object, kind: Any) -> "dict[str, Field[Any]]":
        defaults: dict[str, Any] = getattr(kind.__init__, "__kwdefaults__", None) or {}
        plain: Any = dataclass(kw_only=True)(
            type(kind.__name__, (), {"__annotations__": kind.__annotations__, **defaults})
        )
        found: dict[str, Field[Any]] = plain.__dataclass_fields__
        type.__setattr__(kind, "__dataclass_fields__", found)
        return found


class Message:
    """Base of the messages that scripts/gen_proto.py generates. `_values` returns the fields in their order."""

    __slots__ = ()
    __dataclass_fields__ = _Fields()

    def _values(self) -> tuple[Any, ...]:
        return ()

    def __eq__(self, other: object) -> bool:
        return self._values() == other._values() if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        pairs = zip(self.__dataclass_fields__, self._values(), strict=True)
        return f"{type(self).__qualname__}({', '.join(f'{name}={each!r}' for name, each in pairs)})"
