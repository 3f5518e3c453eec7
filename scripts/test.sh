#!/usr/bin/env bash
# Everything that this machine can test, and at the end what it could not and why. Non-zero if anything failed.
# Arguments go to pytest: scripts/test.sh -x -k election
#
# Three lanes at once, since most of what runs real processes waits: those; the rest of the tests; and at the lowest priority the
# model and the simulator, which only compute.
set -uo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh || exit 1
failed=()
not_run=()
waiting=(tests/integration)
beside=(tests/unit tests/bench_smoke)
computing=(tests/model tests/sim)

if engine=$(docker version --format '{{.Server.Version}}' 2>&1); then
    echo "test: a Docker engine answers ($engine): with the Compose tests"
    beside+=(tests/compose)
    # First, since tests outside of tests/compose use images too (Prometheus over the local cluster).
    scripts/images.sh --quiet || failed+=(images)
else
    not_run+=("tests/compose: no Docker engine answers ($(tail -n 1 <<<"$engine")); scripts/docker_engine.sh can get one")
fi

scripts/check.sh || failed+=(check)

# -rs: the reason of each skipped test stands above the closing line.
run=(.venv/bin/python -m pytest -q -rs --durations=10 "$@")
# With -k nothing may be left of a lane: pytest then exits with 5.
ended_well() { [[ $1 == 0 || $1 == 5 ]]; }

folder=$(mktemp -d)
lanes=()
# start NAME COMMAND...: in the background; what it prints is kept.
start() {
    set -m # a process group of its own, so that Ctrl-C can end all of it
    "${@:2}" >"$folder/$1" 2>&1 &
    lanes+=($!)
    set +m
}
trap 'for lane in "${lanes[@]}"; do kill -- "-$lane" 2>/dev/null; done; rm -rf "$folder"' EXIT

start computing nice -n 19 "${run[@]}" "${computing[@]}"
start beside "${run[@]}" "${beside[@]}"
echo "test: ${waiting[*]}; meanwhile ${beside[*]} ${computing[*]}, shown when all are done"
"${run[@]}" "${waiting[@]}"
ended_well $? || failed+=("${waiting[*]}")
wait "${lanes[1]}"
ended_well $? || failed+=("${beside[*]}")
wait "${lanes[0]}"
ended_well $? || failed+=("${computing[*]}")
cat "$folder/beside" "$folder/computing"

for reason in "${not_run[@]}"; do echo "test: not run: $reason"; done
if ((${#failed[@]})); then
    printf 'test: FAILED:'
    printf ' %s;' "${failed[@]}"
    printf '\n'
    exit 1
fi
echo "test: all passed; skipped tests, if any, are listed above with their reason"
