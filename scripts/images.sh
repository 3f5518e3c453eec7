#!/usr/bin/env bash
# Builds the images of docker-compose.yml, and before that the base that they are built on where it cannot be pulled.
#
#   scripts/images.sh [--help] [options and services for `docker compose build`]
#
#   COMPOSE_PROFILES    spark: also the image of the Spark cluster, which is 1.2 GB; so does the service spark-master
#   TIDELOG_BASE        base image (default debian:trixie-slim)
#   TIDELOG_CA_BUNDLE   certificate bundle for pip during the build (default: this machine's)
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=lib/docker.sh
. "$here/lib/docker.sh"
cd "$here/.."

# The bundle is a secret of the build: it is used there and left in no image. A machine without one gets an empty file.
find_ca_bundle() {
    local candidate
    for candidate in /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem; do
        if [ -f "$candidate" ]; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    : >"${TMPDIR:-/tmp}/tidelog-no-ca-bundle"
    printf '%s\n' "${TMPDIR:-/tmp}/tidelog-no-ca-bundle"
}

main() {
    if [ "${1:-}" = --help ]; then
        usage
        return
    fi
    need_engine
    "$here/base_image.sh"
    TIDELOG_CA_BUNDLE=$(setting TIDELOG_CA_BUNDLE "$(find_ca_bundle)")
    TIDELOG_REVISION=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
    export TIDELOG_CA_BUNDLE TIDELOG_REVISION
    docker compose --progress "$(progress)" build "$@"
}

main "$@"
