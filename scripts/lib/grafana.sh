# shellcheck shell=bash
# Sourced after docker.sh, in the directory of docker-compose.yml. Grafana is the one image that can only be pulled: where it
# cannot be, an override file keeps `docker compose up` from trying. Defines functions only.

override=docker-compose.override.yml
override_mark='# Written by scripts/base_image.sh, which removes it'

override_is_ours() { [ -f "$override" ] && grep -qF "$override_mark" "$override"; }

# True when the image of Grafana is here or can be pulled. Its manifest is asked for, which is quick where no registry is reached.
grafana_available() {
    local image
    image=$(sed -n 's/^ *image: \(grafana\/grafana:.*\)$/\1/p' docker-compose.yml)
    docker image inspect "$image" >/dev/null 2>&1 || timeout 10 docker manifest inspect "$image" >/dev/null 2>&1
}

# Writes the override file where Grafana cannot be pulled, and removes it where it can. A file of the user's own stays.
fit_override() {
    if grafana_available; then
        if override_is_ours; then
            rm "$override"
            say "Grafana can be pulled: $override is removed"
        fi
    elif [ -f "$override" ] && ! override_is_ours; then
        say "Grafana cannot be pulled, and $override is yours and stays: 'make up' leaves Grafana out;" \
            "for 'docker compose up' put grafana into a profile there"
    elif [ ! -f "$override" ]; then
        cat >"$override" <<END
$override_mark as soon as Grafana can be pulled.
services:
  grafana:
    profiles: [ui]
END
        say "Grafana cannot be pulled: $override leaves it out"
    fi
}
