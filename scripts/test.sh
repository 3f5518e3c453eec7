#!/usr/bin/env bash
# Everything that this machine can test, and at the end what it could not and why. Non-zero if anything failed.
# Arguments go to pytest: scripts/test.sh -x -k election
set -uo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh || exit 1
failed=()
not_run=()
directories=()

for name in unit model sim integration bench_smoke; do
    if [[ -d tests/$name ]]; then directories+=("tests/$name"); fi
done
if engine=$(docker version --format '{{.Server.Version}}' 2>&1); then
    echo "test: a Docker engine answers ($engine): with the Compose tests"
    directories+=(tests/compose)
    # First, since tests outside of tests/compose use images too (Prometheus over the local cluster).
    scripts/images.sh --quiet || failed+=(images)
else
    not_run+=("tests/compose: no Docker engine answers ($(tail -n 1 <<<"$engine")); scripts/docker_engine.sh can get one")
fi

scripts/check.sh || failed+=(check)
# -rs: the reason of each skipped test stands above the closing line.
.venv/bin/python -m pytest -q -rs --durations=10 "$@" "${directories[@]}" || failed+=(pytest)

for reason in "${not_run[@]}"; do echo "test: not run: $reason"; done
if ((${#failed[@]})); then
    echo "test: FAILED: ${failed[*]}"
    exit 1
fi
echo "test: all passed; skipped tests, if any, are listed above with their reason"
