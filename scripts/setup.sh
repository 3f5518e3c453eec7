#!/usr/bin/env bash
# Makes .venv with the packages of requirements.lock and this project in it. Does nothing when neither has changed.
# PYTHON=path chooses the interpreter for a new .venv.
set -euo pipefail
cd "$(dirname "$0")/.."
stamp=.venv/.set-up

fail() {
    echo "setup: $*" >&2
    exit 1
}

find_python() {
    local candidate
    for candidate in ${PYTHON:-python3.11 python3 python3.12 python3.13}; do
        if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    fail "needs Python 3.11, 3.12 or 3.13${PYTHON:+, and PYTHON=$PYTHON is not that} (Debian: apt-get install python3 python3-venv)"
}

check_java() {
    local major
    command -v java >/dev/null || fail "needs Java 17 or later for ZooKeeper and Spark (Debian: apt-get install openjdk-17-jre-headless)"
    major=$(java -version 2>&1 | sed -nE 's/.*version "([0-9]+).*/\1/p' | head -n 1)
    [[ ${major:-0} -ge 17 ]] || fail "needs Java 17 or later, 'java' is version ${major:-unknown} (Debian: apt-get install openjdk-17-jre-headless)"
}

wanted() {
    cat requirements.lock pyproject.toml | sha256sum | cut -d' ' -f1
    pwd
}

check_java
if [[ -x .venv/bin/python && -f $stamp ]] && .venv/bin/python -c '' 2>/dev/null && [[ $(cat $stamp) == "$(wanted)" ]]; then
    exit 0
fi
if ! .venv/bin/python -c '' 2>/dev/null; then
    python=$(find_python)
    "$python" -c 'import ensurepip' 2>/dev/null ||
        fail "$python cannot make virtual environments (Debian: apt-get install python3-venv)"
    echo "setup: .venv from $("$python" --version)"
    "$python" -m venv --clear .venv
fi
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_ROOT_USER_ACTION=ignore
echo "setup: installing the packages of requirements.lock (the first time about 700 MB)"
# PySpark comes as source. What builds it is locked too, so it goes in first and pip fetches none of its own choice.
build_tools=$(mktemp)
trap 'rm -f "$build_tools"' EXIT
awk '/^[a-z]/ { keep = /^(setuptools|wheel|packaging)==/ } keep' requirements.lock >"$build_tools"
.venv/bin/python -m pip install --quiet --require-hashes -r "$build_tools" &&
    .venv/bin/python -m pip install --quiet --require-hashes --no-build-isolation --use-pep517 -r requirements.lock ||
    fail "pip could not install requirements.lock; its message is above (is a package index reachable?)"
.venv/bin/python -m pip install --quiet --no-deps --no-build-isolation -e . || fail "pip could not install the project itself"
wanted >$stamp
echo "setup: done"
