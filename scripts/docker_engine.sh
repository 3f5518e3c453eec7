#!/usr/bin/env bash
# Gets and starts a Docker engine with Compose v2 and Buildx on a bare Debian machine, and a base image to build on.
# Does nothing, quickly, where they are there already. Needs root; works without systemd.
#
#   scripts/docker_engine.sh [--help]
#
#   TIDELOG_DOCKER_LOG   log of installation and daemon (default /var/log/tidelog-docker.log)
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=lib/docker.sh
. "$here/lib/docker.sh"

log=${TIDELOG_DOCKER_LOG:-/var/log/tidelog-docker.log}
plugin_dir=/usr/local/lib/docker/cli-plugins
# Debian 12 carries Compose v1 and no Buildx; the plugins of the next release are static enough to run on it.
plugin_suite=trixie

install_engine() {
    say "installing docker.io (log: $log)"
    apt-get update >>"$log" 2>&1
    local packages=(docker.io iptables ca-certificates debootstrap)
    # From Debian 13 on the client is a package of its own.
    if ! command -v docker >/dev/null && apt-cache show docker-cli >/dev/null 2>&1; then packages+=(docker-cli); fi
    DEBIAN_FRONTEND=noninteractive apt-get install -y -o DPkg::Lock::Timeout=120 --no-install-recommends "${packages[@]}" >>"$log" 2>&1 ||
        fail "apt-get could not install ${packages[*]}; see $log"
}

# Unpacks the Compose and Buildx plugins of $plugin_suite beside the installed client, with apt directories of their own,
# so that the machine's package lists and pins stay as they are.
install_plugins() (
    say "installing the Compose and Buildx plugins"
    local apt
    apt=$(mktemp -d)
    trap 'rm -rf "$apt"' EXIT
    mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/root" "$plugin_dir"
    debian_sources "$plugin_suite" >"$apt/sources.list"
    [ -s "$apt/sources.list" ] || fail "no Debian package source is configured in /etc/apt"
    local options=(
        -o Dir::Etc::SourceList="$apt/sources.list" -o Dir::Etc::SourceParts=/dev/null
        -o Dir::State::Lists="$apt/lists" -o Dir::Cache="$apt/cache" -o APT::Sandbox::User=root
    )
    apt-get "${options[@]}" update >>"$log" 2>&1 || fail "apt-get could not read the package lists of $plugin_suite; see $log"
    (cd "$apt" && apt-get "${options[@]}" download docker-compose docker-buildx) >>"$log" 2>&1 ||
        fail "apt-get could not download the plugins of $plugin_suite; see $log"
    local package
    for package in "$apt"/*.deb; do dpkg -x "$package" "$apt/root"; done
    find "$apt/root" -path '*/cli-plugins/docker-*' -type f -exec install -m 755 -t "$plugin_dir" {} +
    has_compose || fail "the Compose plugin in $plugin_dir does not run; see 'docker info'"
    has_buildx || fail "the Buildx plugin in $plugin_dir does not run; see 'docker info'"
)

start_engine() {
    say "starting the engine (log: $log)"
    if [ -d /run/systemd/system ]; then
        systemctl start docker >>"$log" 2>&1 || true
    else
        # The pid file of a daemon that was killed keeps the next one from starting; so does one whose number is now a
        # zombie's or another program's.
        local pid_file=/var/run/docker.pid
        if [ -f "$pid_file" ] && [[ $(readlink "/proc/$(cat "$pid_file")/exe") != */dockerd ]]; then rm -f "$pid_file"; fi
        setsid nohup dockerd >>"$log" 2>&1 </dev/null &
    fi
    local _
    for _ in $(seq 60); do
        if engine_answers; then return 0; fi
        sleep 0.5
    done
    return 1
}

main() {
    if [ "${1:-}" = --help ]; then
        usage
        return
    fi
    if engine_answers && has_compose && has_buildx; then
        say "Docker $(docker version --format '{{.Server.Version}}') with $(docker compose version --short) and Buildx is there"
    elif [ -n "${DOCKER_HOST:-}" ]; then
        fail "no engine with Compose v2 and Buildx answers at DOCKER_HOST=$DOCKER_HOST; start it or unset the variable"
    elif [ -z "$(debian_codename)" ]; then
        fail "install Docker Engine with Compose v2 and Buildx as your system documents it, start it, and run this again"
    elif [ "$(id -u)" != 0 ]; then
        fail "run this once as root, for instance: sudo $0"
    else
        touch "$log"
        if ! command -v dockerd >/dev/null || ! command -v docker >/dev/null; then install_engine; fi
        if ! has_compose || ! has_buildx; then install_plugins; fi
        if ! engine_answers; then start_engine || fail "the engine did not start within 30 s: $(tail -n 1 "$log")"; fi
        say "Docker $(docker version --format '{{.Server.Version}}') runs"
    fi
    "$here/base_image.sh"
}

main "$@"
