#!/usr/bin/env python3
"""Plays a seed of the simulator and writes it as a story of the lab: `make sim SEED=17 STORY=seed-17.yaml`."""

import argparse
import shlex
import sys
from pathlib import Path

from tidelog.lab.story_file import SEED_MAX
from tidelog.lab.story_text import of_seed


def main() -> int:
    parser = argparse.ArgumentParser("sim", argparse.SUPPRESS, __doc__)
    parser.add_argument("--story", type=Path, required=True, metavar="STORY")
    parser.add_argument("--seed", default="", metavar="SEED")
    arguments = parser.parse_args()
    path, seed = arguments.story, arguments.seed
    if not (seed.isascii() and seed.isdigit() and len(seed) < 20 and int(seed) <= SEED_MAX):
        parser.error(f"SEED: {seed!r} is not a whole number from 0 to {SEED_MAX}; STORY is the file of one seed")
    if path.is_dir():
        parser.error(f"STORY: {path} is a directory")
    text, ended = of_seed(int(seed))
    try:
        path.write_text(text, encoding="utf-8")
    except (OSError, ValueError) as error:
        parser.error(f"STORY: {path} cannot be written: {getattr(error, 'strerror', None) or error}")
    name = shlex.quote(str(path))
    print(f"{ended}\n  look: tidelog lab --lesson {name} --open, or tidelog lab run {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
