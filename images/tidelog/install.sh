#!/bin/sh
# Used while an image is built: `install packages` puts the locked packages into /opt/tidelog, `install spark-packages` those of
# the pipeline too; `install wheel` makes a package of the project, `install project` puts it there. pip and setuptools stay in
# /opt/build, out of the image.
set -eu

pip() { /opt/build/bin/python -m pip --disable-pip-version-check --quiet "$@"; }
locked="--require-hashes --no-deps --only-binary :all:"

if [ -s /run/secrets/ca-bundle ]; then export PIP_CERT=/run/secrets/ca-bundle; fi
if [ -s /run/secrets/pip-index-url ]; then
    PIP_INDEX_URL=$(cat /run/secrets/pip-index-url)
    export PIP_INDEX_URL
fi

case $1 in
packages)
    # shellcheck disable=SC2086 # several words
    pip --python /opt/tidelog/bin/python install $locked -r requirements-server.lock
    sed -n '/^setuptools==/,/[^\\]$/p' requirements.lock >/tmp/build.lock
    # shellcheck disable=SC2086
    pip install $locked -r /tmp/build.lock
    ;;
spark-packages)
    # PySpark comes as source alone, which is Python and jars: it is packed by the setuptools of the lock file.
    # shellcheck disable=SC2086
    pip wheel $locked --no-binary pyspark --no-build-isolation --wheel-dir /tmp/spark-wheels -r requirements-spark.lock
    pip --python /opt/tidelog/bin/python install --no-deps --no-index /tmp/spark-wheels/*.whl
    rm -r /tmp/spark-wheels
    ;;
wheel)
    pip wheel --no-deps --no-build-isolation --no-index --wheel-dir /tmp/wheels .
    ;;
project)
    pip --python /opt/tidelog/bin/python install --no-deps --no-index /tmp/wheels/*.whl
    ;;
*)
    echo "install: packages, spark-packages, wheel or project, not $1" >&2
    exit 2
    ;;
esac
