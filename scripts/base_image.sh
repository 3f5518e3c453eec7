#!/usr/bin/env bash
# Makes sure that the base image of every Dockerfile is in the local engine: pulls it, or, where Docker Hub cannot be
# reached, makes it with debootstrap from this machine's Debian package sources and gives it the same name, so that a
# bare `docker compose up` finds it. A later `docker pull` replaces the stand-in. Quick when the image is there.
#
# Grafana has no stand-in: where it cannot be pulled a docker-compose.override.yml leaves it out, until it can be.
#
#   scripts/base_image.sh [--help]
#
#   TIDELOG_BASE           name of the base image (default debian:trixie-slim)
#   TIDELOG_PULL_SECONDS   how long a pull may take before the image is made here (default 60)
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=lib/docker.sh
. "$here/lib/docker.sh"
# shellcheck source=lib/grafana.sh
. "$here/lib/grafana.sh"
cd "$here/.."

image=$(setting TIDELOG_BASE debian:trixie-slim)
suite=trixie

make_image() (
    [ -n "$(debian_codename)" ] || fail "Docker Hub cannot be reached and only Debian can make $image; load it with 'docker load'"
    [ "$(id -u)" = 0 ] || fail "Docker Hub cannot be reached; make $image once as root: sudo $0"
    if ! command -v debootstrap >/dev/null; then
        { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends debootstrap; } >/dev/null ||
            fail "apt-get could not install debootstrap"
    fi
    local root sources mirror
    root=$(mktemp -d /var/tmp/tidelog-base.XXXXXX)
    trap 'rm -rf "$root" "$root.log"' EXIT
    sources=$(debian_sources "$suite")
    mirror=$(awk -v suite="$suite" '$3 == suite { print $2; exit }' <<<"$sources")
    [ -n "$mirror" ] || fail "no Debian package source is configured in /etc/apt"
    say "Docker Hub cannot be reached: making $image with debootstrap"
    debootstrap --variant=minbase "$suite" "$root" "$mirror" >"$root.log" 2>&1 || fail "debootstrap failed: $(tail -n 1 "$root.log")"
    printf '%s\n' "$sources" >"$root/etc/apt/sources.list"
    slim "$root"
    tar -C "$root" --numeric-owner -c . | docker import \
        --change 'CMD ["bash"]' \
        --change 'LABEL org.opencontainers.image.title="Debian trixie, made locally with debootstrap in place of the pulled image"' \
        - "$image" >/dev/null
)

# What Debian's own slim images leave out, and what keeps later layers small.
slim() {
    local root=$1
    rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/* "$root"/var/log/*.log \
        "$root"/usr/share/{doc,man,info,locale}/*
    printf '%s\n' 'APT::Keep-Downloaded-Packages "false";' 'Dir::Cache::pkgcache "";' 'Dir::Cache::srcpkgcache "";' \
        >"$root/etc/apt/apt.conf.d/docker-clean"
    printf 'path-exclude /usr/share/%s/*\n' doc man info locale >"$root/etc/dpkg/dpkg.cfg.d/slim"
    : >"$root/etc/resolv.conf"
    : >"$root/etc/hostname"
}

main() {
    if [ "${1:-}" = --help ]; then
        usage
        return
    fi
    engine_answers || fail "no Docker engine answers; run scripts/docker_engine.sh as root"
    pull_within "$image" "${TIDELOG_PULL_SECONDS:-60}" 2>/dev/null || make_image
    say "$image is there"
    fit_override
}

main "$@"
