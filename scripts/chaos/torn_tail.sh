#!/usr/bin/env bash
# SIGKILL, and the end of a log torn off: scripts/chaos/torn_tail.sh "follower of 0" --bytes 200 --for 2s
# It is seen to take effect, and is healed however the script ends. --help has the rest.
exec "$(dirname "$0")/inject.sh" torn-tail "$@"
