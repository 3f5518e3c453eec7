#!/usr/bin/env bash
# An orderly restart: scripts/chaos/restart.sh "controller"
# It is seen to take effect, and is healed however the script ends. --help has the rest.
exec "$(dirname "$0")/inject.sh" restart "$@"
