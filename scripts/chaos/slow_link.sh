#!/usr/bin/env bash
# Links delayed and narrow: scripts/chaos/slow_link.sh "leader of 0" --peers "all brokers" --delay 100ms --jitter 50ms
# It is seen to take effect, and is healed however the script ends. --help has the rest.
exec "$(dirname "$0")/inject.sh" slow-link "$@"
