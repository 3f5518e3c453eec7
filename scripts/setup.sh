#!/usr/bin/env bash
# Makes .venv with the packages of requirements.lock and this project in it. Does nothing when neither has changed.
# PYTHON=path chooses the interpreter for a new .venv. What installs is the uv on PATH, else that of the lock file, and pip where
# neither can.
#
# .venv/.set-up has two lines: the checksum of what was installed, or "unfinished", and the directory that .venv belongs to. What an
# interrupted run leaves is never trusted: a package may be there in part. It is made anew.
set -euo pipefail
cd "$(dirname "$0")/.."
stamp=.venv/.set-up
python=.venv/bin/python
again="remove it or move it away, then run this again"
output="" # of the last command that `quietly` ran
before="" # the stamp of a .venv that was whole when this run began
left_out="" # the package of the lock file that cannot be had here
# uv and pip handle Ctrl-C themselves and end with a code: bash would go on as after any other failure.
trap 'exit 130' INT

say() { echo "setup: $*"; }

fail() {
    say "$*" >&2
    exit 1
}

quietly() { output=$("$@" 2>&1); }

supported() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; }

find_python() {
    local candidate
    for candidate in ${PYTHON:-python3.11 python3 python3.12 python3.13}; do
        if supported "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    fail "needs Python 3.11, 3.12 or 3.13${PYTHON:+, and PYTHON=$PYTHON is not that} (Debian: apt-get install python3 python3-venv)"
}

wanted() {
    cat requirements.lock pyproject.toml | sha256sum | cut -d' ' -f1
    pwd -P
}

done_already() { [[ -f $stamp && $(<$stamp) == "$(wanted)" ]] && $python -c '' 2>/dev/null; }

# The directory that .venv belongs to: by its stamp, else by what another tool has written into it.
owner() {
    local made_at
    if [[ -s $stamp ]]; then
        tail -n 1 $stamp
        return
    fi
    made_at=$(sed -nE "s/^ *(export )?VIRTUAL_ENV=[\"']?(\/[^\"']*)[\"']?$/\2/p" .venv/bin/activate 2>/dev/null) ||
        made_at=$(readlink -m .venv)
    dirname "$made_at"
}

mark_unfinished() {
    echo unfinished
    pwd -P
} >$stamp

make_venv() {
    local base
    base=$(find_python)
    "$base" -c 'import ensurepip' 2>/dev/null ||
        fail "$base cannot make virtual environments (Debian: apt-get install python3-venv)"
    say ".venv from $("$base" --version)"
    mkdir -p .venv
    mark_unfinished
    find .venv/ -mindepth 1 ! -path $stamp -delete
    quietly "$base" -m venv --without-pip .venv || give_up "$base could not make .venv"
}

# The packages of the lock file whose names match.
locked() { awk -v names="^($1)==" '/^[a-z]/ { keep = $0 ~ names } keep' requirements.lock; }

# Everything, with the installer that is given. The lock file names all that is needed, so none of it is looked for among what packages
# say that they need; uv would fetch PySpark for that alone. PySpark comes as source. What builds it is locked too, so it goes in first
# and the installer fetches none of its own choice.
install() {
    local locked=(--quiet --require-hashes --no-deps)
    quietly "$@" install "${locked[@]}" -r <(locked 'setuptools|wheel|packaging') &&
        quietly "$@" install "${locked[@]}" --no-build-isolation \
            -r <(sed "/^${left_out:-none}==/,/[^\\]$/d" requirements.lock) &&
        quietly "$@" install --quiet --no-deps --no-build-isolation -e .
}

recent_uv() { [[ $(uv --version 2>/dev/null) =~ ^uv\ ([0-9]+)\.([0-9]+) ]] && ((BASH_REMATCH[1] > 0 || BASH_REMATCH[2] >= 8)); }

install_by_uv() {
    local uv=(uv)
    if ! recent_uv; then
        uv=("$python" -m uv)
        quietly "${pip[@]}" install --quiet --require-hashes --only-binary :all: -r <(locked uv) || {
            left_out=uv
            return 1
        }
    fi
    install "$python" scripts/uv_settings.py "${uv[@]}" pip
}

# The reason in one line: the last one, or the last with these words.
reason() { grep -e "${1:-.}" <<<"$output" | tail -n 1 | sed -E 's/^[^[:alnum:]]*((cause|error|ERROR): )?//'; }

# Ends the run after a failure that another installer would meet too.
give_up_if_hopeless() {
    local why
    [[ $output != *"No space left on device"* ]] || fail "a disk is full: $(reason "No space left on device")"
    [[ $output == *"connection broken by"* ]] || return 0
    why=$(sed -nE "s/.*connection broken by '([A-Za-z]+.*\[Errno [-0-9]+\] )?([^'\"()]*).*/\2/p" <<<"$output" | tail -n 1)
    # Nothing has been installed, so what was there is as good as before.
    [[ -z $before ]] || echo "$before" >$stamp
    fail "no package index answers ($why): is there a network, and does 'pip config list' show the right index?"
}

give_up() {
    give_up_if_hopeless
    echo "$output" >&2
    fail "$1; the reason is above"
}

warn_without_java() {
    local java version major
    java=${JAVA_HOME:+$JAVA_HOME/bin/}java
    version=$("$java" -version 2>&1 | sed -nE 's/.*version "([^"]+)".*/\1/p' | head -n 1) || true
    major=${version%%[!0-9]*}
    ((${major:-0} >= 17)) ||
        say "no Java 17 or later${version:+ ($java is version $version)}: clusters of processes and Spark need it, unit tests do not" \
            "(Debian: apt-get install openjdk-17-jre-headless)"
}

! done_already || exit 0
exec 9<.
flock --nonblock 9 || {
    say "another set-up is under way here: waiting for it"
    flock 9
}
! done_already || exit 0
[[ $(owner) -ef . ]] || fail ".venv belongs to $(owner) (copied or moved?): $again"
if [[ -d .venv && ! -e $stamp && -n $(ls -A .venv) ]]; then
    supported $python || fail ".venv was made by something else and has no Python 3.11, 3.12 or 3.13 that runs: $again"
    say ".venv was made by something else: the packages go into it, and later runs take it for one of their own"
elif supported $python && [[ $(head -n 1 $stamp) =~ ^[0-9a-f]{64}$ ]]; then
    before=$(<$stamp)
    mark_unfinished
else
    make_venv
fi
$python -c 'import pip' 2>/dev/null || quietly $python -m ensurepip --default-pip || give_up "$python could not get pip"

export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_ROOT_USER_ACTION=ignore PIP_USE_PEP517=1
# pip takes the best version of all its indexes, and uv that of the first which has the package at all, lest a stranger's index supply
# another one of that name. The hashes of the lock file see to that.
export UV_PYTHON=$PWD/$python UV_INDEX_STRATEGY=${UV_INDEX_STRATEGY:-unsafe-best-match}
pip=("$python" -m pip)
say "installing the packages of requirements.lock (the first time about 700 MB)"
install_by_uv || {
    give_up_if_hopeless
    say "uv cannot install them ($(reason)): pip does, which takes longer"
    install "${pip[@]}" || give_up "pip could not install requirements.lock"
}
wanted >$stamp
warn_without_java
say "done in $SECONDS s"
