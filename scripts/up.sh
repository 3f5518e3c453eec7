#!/usr/bin/env bash
# Builds and starts the Compose cluster, returns when every container does its work, and says where everything is.
# COMPOSE_PROFILES=spark adds the Spark cluster; COMPOSE_FILE=docker-compose.yml:deploy/chaos/small-disks.yml adds a file.
#
#   scripts/up.sh [--help] [options and services for `docker compose up`]
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=lib/docker.sh
. "$here/lib/docker.sh"
# shellcheck source=lib/grafana.sh
. "$here/lib/grafana.sh"
cd "$here/.."

host=$(setting DOCKER_HOST_IP 127.0.0.1)
broker_ports=("$(setting BROKER_1_PORT 19092)" "$(setting BROKER_2_PORT 29092)" "$(setting BROKER_3_PORT 39092)")

listens() { (exec 3<>"/dev/tcp/$host/$1") 2>/dev/null; }

# Ends the script when a port of the brokers is taken, and not by the containers themselves.
need_ports() {
    local port published
    published=$(docker compose ps --format '{{.Ports}}')
    for port in "${broker_ports[@]}"; do
        if [[ $published == *":$port->"* ]] || ! listens "$port"; then continue; fi
        if grep -qx " *$port" data/local/cluster.json 2>/dev/null; then
            fail "port $port belongs to the local cluster in data/local: 'tidelog local down' ends it"
        fi
        fail "another program listens at $host:$port, where a broker is to be: stop it, or set another port in .env (.env.example)"
    done
}

# Where one thing is: a name, an address, a remark.
row() { printf '%-11s %-56s %s\n' "$@"; }

where_things_are() {
    local project
    project=$(setting COMPOSE_PROJECT_NAME tidelog)
    if docker compose ps --services 2>/dev/null | grep -qx grafana; then
        row Grafana "http://localhost:$(setting GRAFANA_PORT 3000)" "opens on the board 'Replication and chaos'"
    else
        row Grafana "not here" "its image cannot be pulled; the next 'make up' tries again"
    fi
    row Watch "http://localhost:$(setting WATCH_PORT 8089)" "the cluster and its protocol events, as they happen"
    row Prometheus "http://localhost:$(setting PROMETHEUS_PORT 9090)" "alerts at /alerts"
    row Brokers "$(printf "$host:%s " "${broker_ports[@]}")" "TIDELOG_BOOTSTRAP_SERVERS, if you set it, takes commas"
    row "Break it" "scripts/chaos/kill_leader.sh" "a leader dies under load, and every record is judged"
    row "" "docker kill $project-broker-2-1" "by hand; 'docker compose start broker-2' brings it back"
    row "" "docker kill $project-agent-2-1" "its partitions go to the other agents after 10 s"
}

main() {
    if [ "${1:-}" = --help ]; then
        usage
        return
    fi
    need_engine
    need_settings
    need_ports
    "$here/images.sh"
    # Both would put those aside that are named by hand.
    COMPOSE_PROFILES=$(setting COMPOSE_PROFILES)
    export COMPOSE_PROFILES
    if [ -n "${COMPOSE_FILE:-}" ] && override_is_ours; then export COMPOSE_FILE=$COMPOSE_FILE:$override; fi
    local services=()
    if (($# == 0)) && ! grafana_available; then
        mapfile -t services < <(docker compose config --services | grep -vx grafana)
    fi
    docker compose --progress "$(progress)" up -d --wait "$@" "${services[@]}" || {
        docker compose ps --all
        fail "not every container does its work; 'make logs' shows why"
    }
    where_things_are
}

main "$@"
