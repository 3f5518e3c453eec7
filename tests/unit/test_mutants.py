"""Planted mistakes: a patch that no longer fits stops everything, and what could not judge is no verdict."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mutants import __main__ as command
from mutants.patching import ROOT, ByTest, Inconclusive, Mutant, Patch, StalePatch, judge, patched_tree

WRONG_MAGIC = Patch("wire/batch.py", "HEADER_BYTES: Final = 61", "HEADER_BYTES: Final = 60")


@pytest.mark.parametrize("old", ["no such text", "self"], ids=["gone", "many times"])
def test_a_patch_whose_text_is_not_there_exactly_once_is_stale(old: str, tmp_path: Path) -> None:
    with pytest.raises(StalePatch, match=r"log_store\.py has"):
        patched_tree([Patch("storage/log_store.py", old, "")], tmp_path / "services")


def test_every_patch_of_every_table_fits_the_code_and_the_result_compiles(tmp_path: Path) -> None:
    for number, mutant in enumerate(m for table in command.TABLES for m in table):
        tree = patched_tree(mutant.patches, tmp_path / str(number))
        for file in {patch.file for patch in mutant.patches}:
            compile((tree / "tidelog" / file).read_text(), file, "exec")


def test_a_process_and_its_children_run_the_patched_tree_and_the_real_one_stays_as_it_is(tmp_path: Path) -> None:
    before = (ROOT / "services/tidelog/wire/batch.py").read_bytes()
    tree = patched_tree([WRONG_MAGIC], tmp_path / "services")
    script = "import tidelog.wire.batch as b; print(b.__file__, b.HEADER_BYTES)"
    done = subprocess.run(
        [sys.executable, "-c", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {script!r}])"],
        env={**os.environ, "PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [str(tree / "tidelog/wire/batch.py"), "60"]
    assert (ROOT / "services/tidelog/wire/batch.py").read_bytes() == before


def mutant(test: str) -> Mutant:
    return Mutant("M", "a batch header is too short", (WRONG_MAGIC,), ByTest(test))


def test_a_mutant_is_killed_by_a_test_that_fails_and_survives_one_that_does_not(tmp_path: Path) -> None:
    assert judge(mutant("tests/unit/wire/test_batch.py"), tmp_path / "a", []).killed
    assert not judge(mutant("tests/unit/test_names.py"), tmp_path / "b", []).killed


@pytest.mark.parametrize("test", ["tests/unit/no_such_file.py", "tests/unit/test_names.py::no_such_test"])
def test_a_test_that_cannot_run_is_no_verdict(test: str, tmp_path: Path) -> None:
    with pytest.raises(Inconclusive):
        judge(mutant(test), tmp_path / "services", [])


def test_kept_seeds_come_first_and_a_search_forgets_them() -> None:
    simulated = Mutant("M", "", ())
    assert command.seeds_for(simulated, {"M": 7}, search=False, most=25) == [range(7, 8), range(20), range(20, 25)]
    assert command.seeds_for(simulated, {"M": 7}, search=True, most=20) == [range(20)]
    assert command.seeds_for(simulated, {}, search=False, most=20) == [range(20)]
