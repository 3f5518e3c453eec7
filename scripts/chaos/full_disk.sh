#!/usr/bin/env bash
# A disk without room (Compose: deploy/chaos/small-disks.yml): scripts/chaos/full_disk.sh "leader of 0" --for 10s
# It is seen to take effect, and is healed however the script ends. --help has the rest.
exec "$(dirname "$0")/inject.sh" full-disk "$@"
