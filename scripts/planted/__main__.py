"""`python -m planted [--spark] [--write]`: makes the runs, has them judged, and prints the table; 1 if a judge was wrong."""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from planted.table import DOUBLES, SOUND_RUNS, VARIANTS, Judgement, judged, judged_on_spark, rows_of, told, wanted

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "verification" / "histories.md"
BEGIN: Final = "<!-- table: python -m planted -->"
END: Final = "<!-- end of table -->"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="planted", description=__doc__)
    parser.add_argument("--variants", type=int, default=VARIANTS, help="runs of each row")
    parser.add_argument("--sound", type=int, default=SOUND_RUNS, help="runs in which nothing is wrong")
    parser.add_argument("--doubles", type=int, default=DOUBLES, help="runs with two anomalies")
    parser.add_argument("--spark", action="store_true", help="have a part of them judged by Spark, too")
    parser.add_argument("--write", action="store_true", help="write the table into docs/verification/histories.md")
    given = parser.parse_args(list(arguments))
    runs = list(wanted(given.variants, given.sound, given.doubles))
    with tempfile.TemporaryDirectory() as folder:
        here = [_shown(at, each, len(runs)) for at, each in enumerate(judged(runs, Path(folder)), 1)]
        spark = list(judged_on_spark([each for each in here if each.wanted.on_spark])) if given.spark else []
    table = "\n".join(rows_of(here, spark))
    sys.stdout.write(f"{table}\n")
    wrong = [("here", each) for each in here if each.missed] + [("Spark", each) for each in spark if each.missed]
    for where, each in wrong:
        sys.stdout.write(f"{where}: {told(each)}\n")
    if given.write:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n\n{table}\n\n{END}{rest.partition(END)[2]}")
    return 1 if wrong else 0


def _shown(at: int, each: Judgement, total: int) -> Judgement:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{at} of {total} runs judged ")
    return each


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
