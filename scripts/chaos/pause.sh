#!/usr/bin/env bash
# SIGSTOP, or the freezer with --how freezer (Compose): scripts/chaos/pause.sh "leader of 0" --for 10s
# It is seen to take effect, and is healed however the script ends. --help has the rest.
exec "$(dirname "$0")/inject.sh" pause "$@"
