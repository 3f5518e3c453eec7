#!/bin/sh
# Used while the image is built: `install packages` puts the locked packages into /opt/tidelog, `install project` the project.
# pip and setuptools stay in /opt/build, out of the image.
set -eu

pip() { /opt/build/bin/python -m pip --disable-pip-version-check --quiet "$@"; }

if [ -s /run/secrets/ca-bundle ]; then export PIP_CERT=/run/secrets/ca-bundle; fi
if [ -s /run/secrets/pip-index-url ]; then
    PIP_INDEX_URL=$(cat /run/secrets/pip-index-url)
    export PIP_INDEX_URL
fi

case $1 in
packages)
    pip --python /opt/tidelog/bin/python install --require-hashes --no-deps --only-binary :all: -r requirements-server.lock
    sed -n '/^setuptools==/,/[^\\]$/p' requirements.lock >/tmp/build.lock
    pip install --require-hashes --no-deps --only-binary :all: -r /tmp/build.lock
    ;;
project)
    pip wheel --no-deps --no-build-isolation --no-index --wheel-dir /tmp/wheels .
    pip --python /opt/tidelog/bin/python install --no-deps --no-index /tmp/wheels/*.whl
    ;;
*)
    echo "install: packages or project, not $1" >&2
    exit 2
    ;;
esac
