"""Planted mistakes: one that finds no place stops everything, and a judge that could not judge gives no verdict."""

import asyncio
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from helpers import planted_mistakes
from mutants import __main__ as command
from mutants.altering import Seen
from mutants.judging import Inconclusive, Verdict, judge
from mutants.patching import BROKEN, REACHED, ByTest, Code, Mutant, StaleMutant, Table, around

DEFINITIONS = """
import functools
def told(): return 'told'
@functools.cache
def kept(): return 'kept'
class Kind: pass
NUMBER = 7
OTHER = 7
"""


class Owner:
    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number = 1

    def plain(self, more: int) -> int:
        return self.number + more

    async def slow(self, more: int) -> int:
        return self.number + more

    @property
    def doubled(self) -> int:
        return 2 * self.number

    @staticmethod
    def alone(more: int) -> int:
        return more

    @classmethod
    def name(cls) -> str:
        return cls.__name__


class Heir(Owner):
    __slots__ = ()


def modules(monkeypatch: pytest.MonkeyPatch) -> tuple[ModuleType, ModuleType]:
    """Two modules, the second of which imports a function, a class and a number from the first."""
    home, guest = ModuleType("mutants_home"), ModuleType("mutants_guest")
    exec(DEFINITIONS, vars(home))
    told, kept, kind = (vars(home)[name] for name in ("told", "kept", "Kind"))
    vars(guest).update({"said": told, "kept": kept, "Kind": kind, "NUMBER": 7, "UNRELATED": 7})
    for module in (home, guest):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return home, guest


def test_a_wrapper_gets_the_original_and_restore_puts_it_back() -> None:
    code = Code()
    code.wrap(Owner, "plain", lambda original, self, more: 10 * original(self, more))
    code.wrap(Owner, "slow", lambda original, self, more: original(self, more + 1))
    code.wrap(Owner, "doubled", lambda original, self: original(self) + 1)
    code.wrap(Owner, "alone", lambda original, more: -original(more))
    code.wrap(Owner, "name", lambda original, cls: original(cls).upper())
    owner = Owner()
    told = (owner.plain(1), asyncio.run(owner.slow(1)), owner.doubled, owner.alone(4), Owner.name())
    assert told == (20, 3, 3, -4, "OWNER")
    code.restore()
    told = (owner.plain(1), asyncio.run(owner.slow(1)), owner.doubled, owner.alone(4), Owner.name())
    assert told == (2, 2, 2, 4, "Owner")


def test_fields_are_other_ones_only_while_the_method_runs() -> None:
    code = Code()
    code.during(Owner, "plain", lambda self: {"number": self.number + 100})
    owner = Owner()
    assert (owner.plain(1), owner.number) == (102, 1)
    code.restore()


def test_what_another_module_imported_is_replaced_there_too(monkeypatch: pytest.MonkeyPatch) -> None:
    home, guest = modules(monkeypatch)
    code = Code()
    code.replace(home, "told", lambda: "changed")
    code.replace(home, "Kind", Owner)
    code.replace(home, "NUMBER", 8)
    code.wrap(home, "kept", lambda original: f"{original()} and changed")
    assert (vars(guest)["said"](), vars(guest)["kept"]()) == ("changed", "kept and changed")
    assert (vars(guest)["Kind"], vars(guest)["NUMBER"]) == (Owner, 8)
    assert (vars(home)["OTHER"], vars(guest)["UNRELATED"]) == (7, 7), "the same number under another name"
    code.restore()
    assert (vars(guest)["said"](), vars(guest)["NUMBER"]) == ("told", 7)


def test_what_a_module_has_only_imported_is_replaced_there_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    home, guest = modules(monkeypatch)
    code = Code()
    code.replace(guest, "said", lambda: "changed")
    assert (vars(home)["told"](), vars(guest)["said"]()) == ("told", "changed")
    code.restore()


@pytest.mark.parametrize("owner, name", [(Owner, "gone"), (Heir, "plain"), (planted_mistakes, "gone")])
def test_what_is_not_the_owners_own_is_stale(owner: Any, name: str) -> None:
    with pytest.raises(StaleMutant, match=f"has no {name}"):
        Code().replace(owner, name, lambda: None)
    with pytest.raises(StaleMutant, match=f"has no {name}"):
        Code().wrap(owner, name, lambda original: None)


def test_every_mutant_of_every_table_finds_what_it_replaces() -> None:
    mutants = [mutant for table in command.TABLES for mutant in table]
    assert len({mutant.name for mutant in mutants}) == len(mutants)
    for mutant in mutants:
        code = Code()
        try:
            mutant.plant(code)
            assert code.replaced, mutant.name
        finally:
            code.restore()
        assert mutant.mistake.endswith("."), mutant.name


def takes_too_little(original: Any, self: Any) -> None: ...


def calls_for_trouble(original: Any, self: Any, more: Any) -> Any:
    return original(self, "no number")


@pytest.mark.parametrize("name", ["plain", "slow"])
@pytest.mark.parametrize("wrapper, broken", [(takes_too_little, True), (calls_for_trouble, False)])
def test_errors_of_a_mutant_are_told_from_others(name: str, wrapper: Any, broken: bool, tmp_path: Path) -> None:
    code = Code(tmp_path / "report")
    code.wrap(Owner, name, wrapper)
    with pytest.raises(TypeError):
        found = getattr(Owner(), name)(1)
        asyncio.run(found)
    code.restore()
    lines = (tmp_path / "report").read_text().splitlines()
    assert lines[0] == REACHED and [line.startswith(BROKEN) for line in lines[1:]] == [True] * broken


def named(name: str) -> Mutant:
    (found,) = [each for each in planted_mistakes.MUTANTS if each.name == name]
    return found


@pytest.mark.exhaustive
def test_a_mutant_is_killed_by_a_test_that_fails(tmp_path: Path) -> None:
    verdict = judge(named("every name"), tmp_path / "report", [])
    assert verdict.killed and "tests/unit/test_names.py::" in verdict.how


@pytest.mark.exhaustive
def test_a_mutant_survives_a_test_that_does_not_fail(tmp_path: Path) -> None:
    assert judge(named("no change"), tmp_path / "a", []) == Verdict(killed=False, reached=True)
    assert judge(named("not used"), tmp_path / "b", []) == Verdict(killed=False, reached=False)
    assert "never reached" in command.told(named("not used"), Verdict(killed=False, reached=False), None, 0).lower()


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "name, why",
    [
        ("no file", "ended with 4"),
        ("no test", "ended with 4"),
        ("gone", "StaleMutant: tidelog.names has no validate_no_name"),
        ("wrong call", "the mutant itself does not work: broken: TypeError"),
    ],
)
def test_a_judge_that_cannot_judge_gives_no_verdict(name: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(Inconclusive, match=why):
        judge(named(name), tmp_path / "report", [])


@pytest.mark.exhaustive
def test_a_failure_without_the_mutant_is_no_verdict(tmp_path: Path) -> None:
    test = tmp_path / "test_itself.py"
    test.write_text("def test_itself(): assert False\n")
    with pytest.raises(Inconclusive, match="nothing that it replaces was used"):
        judge(replace(named("not used"), must_fail=ByTest(str(test))), tmp_path / "report", [])


@pytest.mark.exhaustive
def test_the_simulator_runs_with_the_mutant(tmp_path: Path) -> None:
    verdict = judge(named("every seed"), tmp_path / "a", [range(1)])
    assert verdict.killed and verdict.seed == 0 and "is refused" in verdict.how
    assert judge(named("no seed"), tmp_path / "b", [range(1)]) == Verdict(killed=False, reached=True)


def test_kept_seeds_come_first_and_a_search_forgets_them() -> None:
    table = Table("t")
    table.mutant("M")(around(Owner, "plain")(lambda original, *_: original))
    (simulated,) = table
    assert command.seeds_for(simulated, {"M": 7}, search=False, most=25) == [range(7, 8), range(20), range(20, 25)]
    assert command.seeds_for(simulated, {"M": 7}, search=True, most=20) == [range(20)]
    assert command.seeds_for(simulated, {}, search=False, most=20) == [range(20)]


def test_an_object_seen_otherwise_says_the_rest_itself() -> None:
    seen = Seen(Owner(), number=5)
    assert (seen.number, seen.alone(3)) == (5, 3)
