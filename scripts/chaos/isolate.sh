#!/usr/bin/env bash
# Links cut, both ways or one: scripts/chaos/isolate.sh "leader of 0" --peers "all zookeepers" --direction both --for 10s
# It is seen to take effect, and is healed however the script ends. --help has the rest.
exec "$(dirname "$0")/inject.sh" isolate "$@"
