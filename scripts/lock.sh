#!/usr/bin/env bash
# Writes the lock files: universal (3.11 to 3.13), hashed, naming no index.
#   requirements.lock          everything, for development machines and `make setup`
#   requirements-server.lock   what a process needs at run time, for the images
#   requirements-spark.lock    that and Spark, in the versions of requirements.lock, for the image of the pipeline
set -euo pipefail
cd "$(dirname "$0")/.."
compile=(.venv/bin/python scripts/uv_settings.py .venv/bin/uv pip compile --quiet --universal --generate-hashes
    --no-emit-index-url --no-emit-find-links --no-annotate --no-header --python-version 3.11 pyproject.toml)
"${compile[@]}" --extra spark --extra chaos --extra dev -o requirements.lock
"${compile[@]}" -o requirements-server.lock
"${compile[@]}" --extra spark --constraints requirements.lock -o requirements-spark.lock
