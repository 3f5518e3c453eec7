#!/usr/bin/env python3
"""Plays every lesson of the lab and writes the digests of their events, which a test compares: `make lessons`.

Exits 1 if a lesson does not hold; its digest is written all the same.
"""

import json
import sys

from tidelog.lab import story_file
from tidelog.lab.play import play


def main() -> int:
    path = story_file.library() / story_file.DIGESTS
    before = json.loads(path.read_text()) if path.exists() else {}
    digests, failed = {}, 0
    for lesson in story_file.lessons():
        played = play(story_file.load(lesson))
        digests[lesson.stem] = played.digest
        failed += not played.held
        changed = "" if before.get(lesson.stem) == played.digest else ", its events changed"
        print(f"{lesson.stem}: {'holds' if played.held else 'FAILED'}{changed}")
        for outcome in played.outcomes:
            if not outcome.held:
                print(f"  {lesson}:{outcome.line}: {outcome.text}: {outcome.found}")
    path.write_text(json.dumps(digests, indent=2) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
