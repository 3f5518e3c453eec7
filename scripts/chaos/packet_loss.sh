#!/usr/bin/env bash
# Packets lost (Compose): scripts/chaos/packet_loss.sh "leader of 0" --share 10% --on compose
# It is seen to take effect, and is healed however the script ends. --help has the rest.
exec "$(dirname "$0")/inject.sh" packet-loss "$@"
