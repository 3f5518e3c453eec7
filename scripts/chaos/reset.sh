#!/usr/bin/env bash
# Connections reset, again and again: scripts/chaos/reset.sh "leader of 0" --peers "all brokers and clients" --every 2s
# It is seen to take effect, and is healed however the script ends. --help has the rest.
exec "$(dirname "$0")/inject.sh" reset "$@"
