"""Images as docker-compose.yml names them."""

import os

from tidelog.release import VERSION

TAG = os.environ.get("TIDELOG_TAG") or VERSION


def image(name: str) -> str:
    """`name`: tidelog, zookeeper, prometheus or spark."""
    return f"tidelog/{name}:{TAG}"
