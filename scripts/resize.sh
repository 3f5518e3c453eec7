#!/usr/bin/env bash
# Grows and shrinks the Compose cluster while it works.
#
#   scripts/resize.sh grow [BROKER...]      starts these brokers, gives them their share of everything by the least moves, and
#                                           has Prometheus scrape them
#   scripts/resize.sh shrink [BROKER...]    moves everything off them, then stops and removes them; their volumes stay
#
# BROKER is 4, 5 or both, which is the default. Each returns when all has moved, and goes on where an interrupted one stopped.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=lib/docker.sh
. "$here/lib/docker.sh"
cd "$here/.."

# The command line in a container of its own, which knows where the brokers are, whoever of them is down.
tidelog() { docker compose run --rm -T --no-deps traffic tidelog "$@"; }

# A broker that is down stays a target: it is missed.
target() {
    local action=$1 id
    for id in "${@:2}"; do
        docker compose exec -T prometheus target "$action" broker "broker-$id:9101" ||
            say "Prometheus does not run: its targets stay as they are"
    done
}

grow() {
    docker compose up -d --wait "${@/#/broker-}" || fail "they do not serve; 'make logs SERVICE=broker-$1' shows why"
    target add "$@"
    tidelog cluster add-brokers "$@" --wait
}

shrink() {
    tidelog brokers drain "$@" --wait
    target remove "$@" # before they stop: they are not missed
    docker compose rm --stop --force "${@/#/broker-}"
    tidelog brokers drain "$@" --undo # they are gone, and may come back
}

main() {
    local action=${1:-} id
    case $action in
    grow | shrink) shift ;;
    --help)
        usage
        return
        ;;
    *) fail "'$action' is neither grow nor shrink; see $0 --help" ;;
    esac
    (($#)) || set -- 4 5
    for id in "$@"; do
        [[ $id == [45] ]] || fail "BROKER '$id' is neither 4 nor 5, which are all that docker-compose.yml has beside the first three"
    done
    need_engine
    need_settings
    "$action" "$@"
}

main "$@"
