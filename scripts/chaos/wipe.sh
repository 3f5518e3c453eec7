#!/usr/bin/env bash
# SIGKILL, and a new disk: scripts/chaos/wipe.sh "follower of 0" --for 2s
# It is seen to take effect, and is healed however the script ends. --help has the rest.
exec "$(dirname "$0")/inject.sh" wipe "$@"
