#!/usr/bin/env bash
# Stops and removes the containers of the Compose cluster; with --volumes also their data.
#
#   scripts/down.sh [--help] [--volumes]
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=lib/docker.sh
. "$here/lib/docker.sh"
cd "$here/.."

if [ "${1:-}" = --help ]; then
    usage
else
    need_engine
    need_settings
    docker compose --profile ui --profile spark --profile grow down --remove-orphans "$@"
fi
