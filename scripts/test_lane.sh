#!/usr/bin/env bash
# One lane of scripts/test.sh: test_lane.sh FAILED SHARE GROUP... -- PYTEST_ARGUMENT...
#
# Each GROUP, paths with a space between, is a run of pytest, one after the other. Each test that fails is a line of the file FAILED as
# soon as it does (tests/conftest.py), and so is a run that did not end well. Where the processors do not suffice, the lane has SHARE
# of them for each SHARE of the others. A GROUP that is "yielding" gives way: what follows has a tenth of that, and ten times as long
# for a test that does not say how long it may take.
set -uo pipefail
failed=$1
share=$2
shift 2
groups=()
while [[ $1 != -- ]]; do
    groups+=("$1")
    shift
done
shift

patience=()

# Of a control group, since all that tests start is in it too, whatever its session (cgroups(7), version 1; needs root). Without one
# the kernel shares by session (sched(7), autogroup): as much for each broker of a cluster as for all the rest of a lane.
processors=/sys/fs/cgroup/cpu
own=$processors/tidelog-test-$$
take() { echo "$1" >"$own/cpu.shares"; }
if mkdir "$own" 2>/dev/null; then
    # What tests have left behind, if they were ended, keeps it.
    trap 'echo $$ >"$processors/cgroup.procs"; rmdir "$own" 2>/dev/null' EXIT
    echo $$ >"$own/cgroup.procs"
else
    echo "test: no control group can be made in $processors: the lanes share the processors as they come"
    take() { :; }
fi
take "$share"

for group in "${groups[@]}"; do
    if [[ $group == yielding ]]; then
        take $((share / 10))
        patience=(--timeout 1200)
        continue
    fi
    read -ra paths <<<"$group"
    ((${#paths[@]})) || continue
    ended=0
    # -rfEs: what failed and why, and the reason of each skipped test, stand above the closing line. --tb=short: what failed is
    # read before it is searched for.
    FAILED_TESTS=$failed .venv/bin/python -m pytest -q -rfEs --tb=short --durations=10 "${patience[@]}" "$@" "${paths[@]}" || ended=$?
    # With -k nothing may be left of a group: pytest then exits with 5.
    [[ $ended == 0 || $ended == 5 ]] || echo "$group: pytest ended with $ended" >>"$failed"
done
