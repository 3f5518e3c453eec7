#!/usr/bin/env bash
# Builds and starts the Compose cluster and returns when every container serves. Grafana is added where its image is
# there or can be pulled, and is otherwise left out. COMPOSE_PROFILES=spark adds the Spark cluster.
#
#   scripts/up.sh [--help] [options and services for `docker compose up`]
#
#   TIDELOG_PULL_SECONDS   how long pulling Grafana may take (default 300)
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=lib/docker.sh
. "$here/lib/docker.sh"
cd "$here/.."

grafana_image() { docker compose --profile ui config --images | grep grafana; }

# Asking for the manifest first keeps the wait short where the registry cannot be reached.
grafana_available() {
    local image
    image=$(grafana_image)
    docker image inspect "$image" >/dev/null 2>&1 && return
    timeout 10 docker manifest inspect "$image" >/dev/null 2>&1 || return
    say "pulling $image"
    pull_within "$image" "${TIDELOG_PULL_SECONDS:-300}" 2>/dev/null
}

main() {
    if [ "${1:-}" = --help ]; then
        usage
        return
    fi
    need_engine
    "$here/images.sh"
    # The flag would put those aside that .env or the environment asks for.
    COMPOSE_PROFILES=$(setting COMPOSE_PROFILES)
    if grafana_available; then
        COMPOSE_PROFILES=${COMPOSE_PROFILES:+$COMPOSE_PROFILES,}ui
    else
        say "without Grafana: its image is not here and Docker Hub cannot be reached (later: make up again)"
    fi
    export COMPOSE_PROFILES
    docker compose up -d --wait "$@" || {
        docker compose ps --all
        fail "not every container serves; 'make logs' shows why"
    }
    docker compose ps --format 'table {{.Service}}\t{{.Status}}\t{{.Ports}}'
}

main "$@"
