#!/usr/bin/env bash
# A bit of a file inverted: scripts/chaos/bit_flip.sh "follower of 0" --file segment --for 2s
# It is seen to take effect, and is healed however the script ends. --help has the rest.
exec "$(dirname "$0")/inject.sh" bit-flip "$@"
