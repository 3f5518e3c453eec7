"""Seeded randomness: equal seeds and names give equal numbers in every run and under every PYTHONHASHSEED."""

import random


def seeded(seed: int, name: str = "") -> random.Random:
    """A stream of its own for each name, so that one more draw in one place does not change all others."""
    return random.Random(f"{seed}/{name}")
