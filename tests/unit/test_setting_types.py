"""Values of settings: what is read from text, and what a refused one is told."""

from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from tidelog.config import Addresses, Directory, OptionalAddress
from tidelog.ids import Address
from tidelog.setting_types import Above, Range, convert


@pytest.mark.parametrize(
    ("hint", "value", "found"),
    [
        (int, "-7", -7),
        (Annotated[int, Range(0, 9)], "9", 9),
        (float, "inf", float("inf")),
        (Annotated[float, Above(0)], 3, 3.0),
        (bool, "True", True),
        (bool, "off", False),
        (bool, False, False),
        (bool | None, "", None),
        (bool | None, "yes", True),
        (Literal["a", "b"], "b", "b"),
        (str, "", ""),
        (Directory, "/data", Path("/data")),
        (OptionalAddress, "", None),
        (OptionalAddress, None, None),
        (OptionalAddress, Address("h", 1), Address("h", 1)),
        (Addresses, "h:1, i:2", (Address("h", 1), Address("i", 2))),
        (Addresses, ["h:1", "i:2"], (Address("h", 1), Address("i", 2))),
    ],
)
def test_a_value_is_read_as_its_type(hint: Any, value: object, found: object) -> None:
    read = convert(hint, value)
    assert read == found and type(read) is type(found)


@pytest.mark.parametrize(
    ("hint", "value", "said"),
    [
        (int, "x", "must be a whole number, not 'x'"),
        (int, True, "must be a whole number, not True"),
        (int, 1.5, "must be a whole number, not 1.5"),
        (Annotated[int, Range(1)], "0", "must be a whole number of at least 1, not '0'"),
        (Annotated[float, Above(0)], "0", "must be a number above 0, not '0'"),
        (Annotated[float, Above(0, 5)], "nan", "must be a number above 0, at most 5, not 'nan'"),
        (bool, "maybe", "must be true or false, not 'maybe'"),
        (bool, 1, "must be true or false, not 1"),
        (bool | None, "maybe", "must be true or false, not 'maybe'"),
        (Literal["a", "b"], ["a"], "must be a or b, not ['a']"),
        (Literal["a"], "b", "must be a, not 'b'"),
        (str, 5, "must be text, not 5"),
        (Annotated[str, Range(0, 3)], "long", "must be text of at most 3 characters, not 'long'"),
        (Annotated[str, Range(1, 3)], "", "must be text of at most 3 characters, not empty, not ''"),
        (Addresses, 5, "must be host:port,host:port,..., not 5"),
        (Addresses, "", "must not be empty"),
    ],
)
def test_a_refused_value_is_told_what_is_expected(hint: Any, value: object, said: str) -> None:
    with pytest.raises(ValueError) as caught:
        convert(hint, value)
    assert str(caught.value) == said
