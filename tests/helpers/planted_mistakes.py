"""Mutants on which the machinery of `scripts/mutants` itself is tested: `tests/unit/test_mutants.py`."""

from typing import Final

from mutants.patching import ByTest, Code, Table
from tidelog import names

MUTANTS: Final = Table(__name__)

_OF_NAMES: Final = ByTest("tests/unit/test_names.py")


@MUTANTS.mutant("every name", _OF_NAMES)
def every_name_is_good(code: Code) -> None:
    """Every name is a good one."""
    code.replace(names, "validate_topic_name", lambda name: name)


@MUTANTS.mutant("no change", _OF_NAMES)
def nothing_changes(code: Code) -> None:
    """Nothing changes."""
    code.wrap(names, "validate_topic_name", lambda original, name: original(name))


@MUTANTS.mutant("not used", _OF_NAMES)
def unused_code_changes(code: Code) -> None:
    """The test does not use the code that changes."""
    code.replace(names, "validate_group_id", lambda group_id: group_id)


@MUTANTS.mutant("wrong call", _OF_NAMES)
def replacement_takes_no_name(code: Code) -> None:
    """The replacement cannot be called as the original is."""
    code.replace(names, "validate_topic_name", lambda: "")


@MUTANTS.mutant("gone", _OF_NAMES)
def original_is_gone(code: Code) -> None:
    """The original is not there."""
    code.replace(names, "validate_no_name", lambda name: name)


@MUTANTS.mutant("no file", ByTest("tests/unit/no_such_file.py"))
def no_such_file(code: Code) -> None:
    """The file of the test is not there."""
    code.replace(names, "validate_topic_name", lambda name: name)


@MUTANTS.mutant("no test", ByTest("tests/unit/test_names.py::no_such_test"))
def no_such_test(code: Code) -> None:
    """The test is not in its file."""
    code.replace(names, "validate_topic_name", lambda name: name)


@MUTANTS.mutant("no seed")
def no_seed_fails(code: Code) -> None:
    """No seed fails, since this says nothing but the truth."""
    code.wrap(names, "validate_topic_name", lambda original, name: original(name))


@MUTANTS.mutant("every seed")
def every_seed_fails(code: Code) -> None:
    """Every seed fails."""

    def refuse(name: str) -> str:
        raise AssertionError(f"{name} is refused")

    code.replace(names, "validate_topic_name", refuse)
