#!/usr/bin/env bash
# Removes what builds, tests and runs have left in this directory: the runs below data/chaos, build/ with what benchmarks have fetched
# and a gate has passed, files of Spark, and caches. One line for each thing removed, with its size.
#
#   scripts/clean.sh [--help]
#
# What a process has open or works in stays, so a chaos run in progress and a cluster that runs are safe. So do .venv, clusters of
# `tidelog local up` with their data, and every file that is not the project's own.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=lib/docker.sh
. "$here/lib/docker.sh"
cd "$here/.."
root=$(pwd -P)
removed_kib=0
open=""  # by processes, below this directory: one path a line, and the process behind a tab

line() { printf '%8s  %s\n' "$1" "$2"; }

human() { numfmt --to=iec-i --suffix=B --format=%.1f $(($1 * 1024)); }

# Of all processes that may be looked at. Without /proc that cannot be known, so nothing is removed then.
find_open() {
    [ -d /proc/self/fd ] || fail "there is no /proc here, which tells what is in use: nothing was removed"
    # Processes end meanwhile, of which find complains; and grep fails where nothing is open.
    find /proc/[0-9]*/cwd /proc/[0-9]*/fd -type l -printf '%l\t%p\n' 2>/dev/null | grep -F "$root/" || true
}

# The process that has $1 or something below it open, if there is one.
user_of() {
    awk -F'\t' -v path="$root/$1" '$1 == path || index($1, path "/") == 1 { split($2, at, "/"); print at[3]; exit }' <<<"$open"
}

# Removes the paths after the name under which they are told, unless a process uses one of them.
remove() {
    local name=$1 path pid kib
    shift
    for path; do
        pid=$(user_of "$path")
        if [ -n "$pid" ]; then
            line in-use "$name stays: process $pid ($(cat "/proc/$pid/comm" 2>/dev/null)) uses it"
            return
        fi
    done
    kib=$(du -skc -- "$@" | tail -n 1 | cut -f1)
    rm -rf -- "$@"
    removed_kib=$((removed_kib + kib))
    line "$(human "$kib")" "$name"
}

remove_if_there() {
    local path
    for path; do
        if [ -e "$path" ] || [ -L "$path" ]; then remove "$path" "$path"; fi
    done
}

remove_if_empty() {
    local path
    for path; do
        if [ -d "$path" ]; then rmdir --ignore-fail-on-non-empty "$path"; fi
    done
}

is_run() { [ -f "$1/run.json" ] || [ -f "$1/scenario.yaml" ]; }

runs() {
    local path
    for path in data/chaos/*; do
        if is_run "$path"; then remove "$path" "$path"; fi
    done
    remove_if_there data/chaos/results.jsonl
    remove_if_empty data/chaos data
}

builds() {
    remove_if_there build/gate build/pycache build/releases build/kafka build/spark-kafka build/debian-nats-server build/lib build/bdist.*
    remove_if_empty build
    remove_if_there spark-warehouse metastore_db derby.log
}

caches() {
    local compiled
    remove_if_there .pytest_cache .mypy_cache .ruff_cache .hypothesis
    mapfile -t compiled < <(find services scripts tests -type d -name __pycache__ -prune 2>/dev/null)
    if [ ${#compiled[@]} -gt 0 ]; then remove "__pycache__ of ${#compiled[@]} folders" "${compiled[@]}"; fi
}

# What is left for its owner to remove, and how.
stays() {
    local path
    for path in data/chaos/* data/*; do
        if [ "$path" = data/chaos ] || is_run "$path"; then
            continue
        elif [ -f "$path/cluster.json" ]; then
            line stays "$path, a local cluster: tidelog local down --dir $path ends it, rm -r $path deletes its data"
        else
            line stays "$path, which no build and no run has made: rm -r $path deletes it"
        fi
    done
    if [ -e .venv ]; then line stays ".venv: rm -r .venv deletes it, make setup makes it anew"; fi
}

case "${1:-}" in
    --help) usage ;;
    "")
        shopt -s nullglob
        open=$(find_open)
        runs
        builds
        caches
        line "$(human "$removed_kib")" "in all"
        stays
        ;;
    *) fail "unknown option $1; see --help" ;;
esac
