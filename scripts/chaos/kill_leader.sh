#!/usr/bin/env bash
# Kills the leader of a partition under load and says what it cost: scripts/chaos/kill_leader.sh [--on local|compose] ["leader of 0"]
# Ends with 0 when every promise was kept, 1 when one was broken, 3 when there is no verdict. --help has the rest.
exec "$(dirname "$0")/inject.sh" kill-leader "$@"
