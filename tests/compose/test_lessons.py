"""The lab on the Python of the image, which is not that of the machine."""

import json
import subprocess
from typing import Final

import docker
import pytest

from helpers.images import image
from helpers.scripts import ROOT
from tidelog.lab import story_file

SCRIPT: Final = """
import json, sys
from multiprocessing import Pool
from tidelog.lab import story_file
from tidelog.lab.play import play

def digest(path):
    return path.stem, play(story_file.load(path)).digest

with Pool() as pool:
    digests = dict(pool.imap_unordered(digest, story_file.lessons()))
print(json.dumps([sys.version_info[:2], digests]))
"""


@pytest.mark.smoke
def test_lessons_have_the_same_digests_in_the_image() -> None:
    subprocess.run([ROOT / "scripts/images.sh", "--quiet", "tidelog-image"], check=True)
    client = docker.from_env()
    try:
        said = client.containers.run(image("tidelog"), ["python", "-c", SCRIPT], remove=True, network_mode="none")
    finally:
        client.close()
    version, digests = json.loads(said)
    assert version == [3, 13]
    assert digests == json.loads((story_file.library() / story_file.DIGESTS).read_text())
