#!/usr/bin/env bash
# SIGKILL and a start before the session is over: scripts/chaos/bounce.sh "leader of 0"
# It is seen to take effect, and is healed however the script ends. --help has the rest.
exec "$(dirname "$0")/inject.sh" bounce "$@"
