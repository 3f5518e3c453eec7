#!/usr/bin/env bash
# Everything `make check` looks at. Goes on after a failure, names what failed at the end, changes nothing.
set -uo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH"
failed=()

step() {
    local name=$1
    shift
    echo "== $name"
    "$@" || failed+=("$name")
}

step "format" ruff format --check --quiet .
step "lint" ruff check --quiet .
step "types" mypy -p tidelog -p helpers -p bench -p compose -m unit.client.test_sync_twins
step "tidy" python scripts/check.py
step "language" python scripts/ratchet.py
step "generated protocol code" python scripts/gen_proto.py --check
step "generated pages and boards" python scripts/generate.py --check

step "requirements" python -m pytest --quiet tests/unit/test_requirements.py
if ((${#failed[@]})); then
    printf 'check: FAILED:'
    printf ' %s;' "${failed[@]}"
    printf '\n'
    exit 1
fi
echo "check: all good"
