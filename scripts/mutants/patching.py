"""A mutant, and how it gets into the code of the process that is judged. See the package."""

import functools
import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from mutants.altering import altered

ROOT: Final = Path(__file__).resolve().parent.parent.parent
MUTANT: Final = "TIDELOG_MUTANT"
"""The environment variable with the `reference` of the mutant that a process plants in itself."""
REPORT: Final = "TIDELOG_MUTANT_REPORT"
"""The environment variable with the file in which a process tells what becomes of its mutant."""
REACHED: Final = "reached"
BROKEN: Final = "broken: "

_HERE: Final = f"{Path(__file__).parent}{os.sep}"
_PROGRAMMING_ERRORS: Final = (TypeError, NameError, AttributeError, ImportError)
_ABSENT: Final = object()


class StaleMutant(Exception):
    """The function or constant that a mutant replaces is gone."""


@dataclass(frozen=True, slots=True)
class BySimulator:
    """Some seed of the simulator must fail."""


@dataclass(frozen=True, slots=True)
class ByTest:
    test: str
    """A pytest id."""


class Code:
    """The code of this process, in which a mutant replaces what belongs to a module or a class."""

    def __init__(self, report: Path | None = None) -> None:
        self._report = report
        self._told: set[str] = set()
        self.replaced: list[tuple[object, str, object]] = []
        """Owner, name and original."""

    def wrap(self, owner: ModuleType | type, name: str, around: Callable[..., Any]) -> None:
        """`around` is called in place of a function or method, with the original before the arguments. StaleMutant."""
        self.replace(owner, name, functools.partial(around, _function(_found(owner, name))))

    def during(self, owner: type, name: str, fields: Callable[[Any], dict[str, object]]) -> None:
        """While a method runs, which waits for nothing, its object has these `fields`, made from it. StaleMutant."""

        def around(original: Any, it: Any, *args: Any, **named: Any) -> Any:
            with altered(it, **fields(it)):
                return original(it, *args, **named)

        self.wrap(owner, name, around)

    def replace(self, owner: ModuleType | type, name: str, new: object) -> None:
        """`new` takes the place of a function, method, class or constant, and also where that was imported. StaleMutant."""
        old = _found(owner, name)
        made = self._like(old, new)
        for holder, alias in _places(owner, name, old):
            self.replaced.append((holder, alias, old))
            setattr(holder, alias, made)

    def restore(self) -> None:
        for holder, name, old in reversed(self.replaced):
            setattr(holder, name, old)
        self.replaced.clear()

    def _like(self, old: object, new: object) -> object:
        if isinstance(old, property):
            return property(self._watched(_function(old), new), old.fset)
        if isinstance(old, staticmethod | classmethod):
            return type(old)(self._watched(old.__func__, new))
        if callable(old) and not isinstance(old, type):
            return self._watched(old, new)
        self._tell(REACHED)  # a constant cannot tell that it is read
        return new

    def _watched(self, old: Callable[..., Any], new: Any) -> Callable[..., Any]:
        """`new`, which tells that it is called and when its own code fails."""

        @functools.wraps(old)
        def called(*args: Any, **named: Any) -> Any:
            self._tell(REACHED)
            try:
                return new(*args, **named)
            except _PROGRAMMING_ERRORS as error:
                self._blame(error)
                raise

        @functools.wraps(old)
        async def awaited(*args: Any, **named: Any) -> Any:
            try:
                return await called(*args, **named)
            except _PROGRAMMING_ERRORS as error:
                self._blame(error)
                raise

        return awaited if inspect.iscoroutinefunction(old) else called

    def _blame(self, error: Exception) -> None:
        """An error in a line of a mutant is no finding; one in the code behind it may be."""
        if _innermost_file(error).startswith(_HERE):
            self._tell(f"{BROKEN}{type(error).__name__}: {error}")

    def _tell(self, line: str) -> None:
        if self._report is not None and line not in self._told:
            self._told.add(line)
            with self._report.open("a") as file:
                file.write(f"{line}\n")


def _innermost_file(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return frames[-1].filename if frames else ""


def _found(owner: ModuleType | type, name: str) -> object:
    found = vars(owner).get(name, _ABSENT)
    if found is _ABSENT:
        raise StaleMutant(f"{owner.__name__} has no {name}")
    return found


def _function(found: object) -> Any:
    if isinstance(found, property):
        return found.fget
    return found.__func__ if isinstance(found, staticmethod | classmethod) else found


def _places(owner: ModuleType | type, name: str, old: object) -> Iterator[tuple[object, str]]:
    """`owner` and, for what a module defines, every module that has imported it; mutants keep the original."""
    yield owner, name
    if isinstance(owner, type) or getattr(old, "__module__", owner.__name__) != owner.__name__:
        return  # it is the owner's alone, or the owner itself has only imported it
    for module in list(sys.modules.values()):
        if module is owner or f"{getattr(module, '__file__', '')}".startswith(_HERE):
            continue
        for alias, value in list(vars(module).items()):
            # A small number is the same object everywhere, so that its name must tell.
            if value is old and (alias == name or callable(old)):
                yield module, alias


Plant = Callable[[Code], None]


def around(owner: ModuleType | type, name: str) -> Callable[[Callable[..., Any]], Plant]:
    """The decorated function is called in place of that one, with the original before the arguments."""

    def planting(function: Callable[..., Any]) -> Plant:
        def plant(code: Code) -> None:
            code.wrap(owner, name, function)

        plant.__doc__ = function.__doc__
        return plant

    return planting


@dataclass(frozen=True, slots=True)
class Mutant:
    table: str
    """The module that has it."""
    name: str
    plant: Plant
    must_fail: BySimulator | ByTest

    @property
    def mistake(self) -> str:
        return inspect.getdoc(self.plant) or ""

    @property
    def reference(self) -> str:
        """Tells another process where to find it."""
        return f"{self.table}:{self.name}"


class Table(list[Mutant]):
    """The mutants of one module, which names it MUTANTS."""

    def __init__(self, module: str) -> None:
        super().__init__()
        self._module = module

    def mutant(self, name: str, must_fail: BySimulator | ByTest | None = None) -> Callable[[Plant], Plant]:
        """The decorated function plants the mutant; its docstring names the mistake."""

        def add(plant: Plant) -> Plant:
            self.append(Mutant(self._module, name, plant, must_fail or BySimulator()))
            return plant

        return add


def plant_from_environment() -> None:
    """Plants what MUTANT names, if it names something. StaleMutant."""
    reference = os.environ.get(MUTANT)
    if not reference:
        return
    module, _, name = reference.partition(":")
    mutants: Table = importlib.import_module(module).MUTANTS
    (plant,) = [each.plant for each in mutants if each.name == name]
    report = os.environ.get(REPORT)
    plant(Code(Path(report) if report else None))
