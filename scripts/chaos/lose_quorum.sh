#!/usr/bin/env bash
# ZooKeeper loses its quorum: scripts/chaos/lose_quorum.sh "majority zookeepers" --for 3s
# It is seen to take effect, and is healed however the script ends. --help has the rest.
exec "$(dirname "$0")/inject.sh" lose-quorum "$@"
