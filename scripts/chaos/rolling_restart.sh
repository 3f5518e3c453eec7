#!/usr/bin/env bash
# All brokers restarted, one after the other: scripts/chaos/rolling_restart.sh "all brokers"
# It is seen to take effect, and is healed however the script ends. --help has the rest.
exec "$(dirname "$0")/inject.sh" rolling-restart "$@"
