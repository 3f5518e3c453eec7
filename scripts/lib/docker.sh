# shellcheck shell=bash
# Sourced by the scripts that deal with the Docker engine. Defines functions only.

say() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; }

fail() {
    say "$@"
    exit 1
}

# The value of setting $1 as Compose takes it: from the environment, else from .env, else $2.
setting() {
    local value=${!1:-}
    if [ -z "$value" ] && [ -f .env ]; then value=$(sed -n "s/^$1=//p" .env | tail -n 1); fi
    printf '%s\n' "${value:-${2:-}}"
}

# True when an engine answers. Bounded: a stale socket must not hang the caller.
engine_answers() { command -v docker >/dev/null && timeout 15 docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }

has_compose() { docker compose version >/dev/null 2>&1; }

has_buildx() { docker buildx version >/dev/null 2>&1; }

# Downloads (or, for an image, checks) within $2 seconds; the reason of a failure goes to stderr.
pull_within() {
    local image=$1 seconds=$2
    docker image inspect "$image" >/dev/null 2>&1 || timeout "$seconds" docker pull --quiet "$image" >/dev/null
}

# The Debian codename of this machine, or nothing when it does not run Debian.
debian_codename() {
    # shellcheck source=/dev/null
    (. /etc/os-release 2>/dev/null && [ "${ID:-}" = debian ] && printf '%s\n' "${VERSION_CODENAME:-}") || true
}

# Debian's own package sources as this machine has them configured, as one-line entries for suite $1. No host name is
# written in the repository: a mirror or a proxy that works for the machine works for what is made on it.
debian_sources() {
    local suite=$1 codename
    codename=$(debian_codename)
    # Who a source is from stands in its package list, which a bare machine may not have yet.
    apt-get update >/dev/null 2>&1 || true
    apt-get indextargets --format '$(CREATED_BY)|$(ORIGIN)|$(COMPONENT)|$(REPO_URI)|$(RELEASE)' |
        awk -F'|' -v from="$codename" -v to="$suite" \
            '$1 == "Packages" && $2 == "Debian" && $3 == "main" { sub(from, to, $5); print "deb " $4 " " $5 " main" }' |
        sort -u
}

# Ends the script with what to do unless an engine with Compose v2 and Buildx answers.
need_engine() {
    if ! engine_answers; then
        local why
        why=$(timeout 15 docker version 2>&1 >/dev/null | tail -n 1) || true
        fail "no Docker engine answers (${why:-it gave no reason}). On Debian run scripts/docker_engine.sh as root;" \
            "elsewhere install and start Docker Engine. 'make demo' runs the cluster without Docker"
    fi
    has_compose || fail "'docker compose' (v2) is missing. On Debian run scripts/docker_engine.sh as root"
    has_buildx || fail "'docker buildx' is missing. On Debian run scripts/docker_engine.sh as root"
}

# Ends the script when Compose cannot read its files, .env among them.
need_settings() {
    local why
    why=$(docker compose config --quiet 2>&1) ||
        fail "Compose cannot read its settings ($(tail -n 1 <<<"$why" | tr -d '\0')): mend .env as .env.example shows, or remove it"
}

# How `docker compose` shows what it does: nothing where no person watches, as the build alone is a thousand lines.
progress() { if [ -t 2 ]; then echo auto; else echo quiet; fi; }

# Prints the comment at the head of the script.
usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' "$0"; }
