#!/usr/bin/env bash
# Everything that this machine can test, and at the end what it could not and why. Non-zero if anything failed.
# Arguments go to pytest: scripts/test.sh -x -k election
#
# Two lanes at once, since tests with real processes wait for a part of their time: those, and then the model and the simulator,
# which only compute; the rest, those with Spark and those in containers. A third lane only adds load: on two cores nothing is idle.
set -uo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh || exit 1
arguments=("$@")
failed=()
not_run=()
sparks=(tests/integration/test_{spark,pipeline}*.py tests/integration/test_{sink_steps,demo}.py)
waiting=(tests/integration "${sparks[@]/#/--ignore=}")
containers=()
rest=(tests/unit tests/bench_smoke)
computing=(tests/model tests/sim)

if engine=$(docker version --format '{{.Server.Version}}' 2>&1); then
    echo "test: a Docker engine answers ($engine): with the Compose tests"
    containers=(tests/compose)
    # First, since tests outside of tests/compose use images too (Prometheus over the local cluster).
    scripts/images.sh --quiet || failed+=(images)
else
    not_run+=("tests/compose: no Docker engine answers ($(tail -n 1 <<<"$engine")); scripts/docker_engine.sh can get one")
fi

scripts/check.sh || failed+=(check)

folder=$(mktemp -d)
lanes=()
# lane SHARE GROUP...: in the background, with a process group of its own to end it by.
lane() {
    setsid scripts/test_lane.sh "$folder/failed" "$@" -- "${arguments[@]}" &
    lanes+=($!)
}
trap 'for lane in "${lanes[@]}"; do kill -- "-$lane" 2>/dev/null; done; rm -rf "$folder"' EXIT

echo "test: tests/integration, then ${computing[*]}; beside them ${rest[*]}, those with Spark, ${containers[*]}: shown when all is done"
# Tests of real processes state how long something may take at most; those beside them mostly do not.
lane 512 "${rest[*]}" "${sparks[*]}" "${containers[*]}" >"$folder/beside" 2>&1
lane 1024 "${waiting[*]}" yielding "${computing[*]}"
wait "${lanes[@]}"
cat "$folder/beside"
[[ ! -e $folder/failed ]] || mapfile -t -O "${#failed[@]}" failed <"$folder/failed"

for reason in "${not_run[@]}"; do echo "test: not run: $reason"; done
if ((${#failed[@]})); then
    echo "test: FAILED:"
    printf '  %s\n' "${failed[@]}"
    exit 1
fi
echo "test: all passed; skipped tests, if any, are listed above with their reason"
