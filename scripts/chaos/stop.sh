#!/usr/bin/env bash
# SIGTERM, and the end of the process: scripts/chaos/stop.sh "leader of 0" --for 5s
# It is seen to take effect, and is healed however the script ends. --help has the rest.
exec "$(dirname "$0")/inject.sh" stop "$@"
