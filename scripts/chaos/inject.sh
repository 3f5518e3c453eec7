#!/usr/bin/env bash
# One fault on a running cluster: scripts/chaos/inject.sh FAULT [TARGET] [--on local|compose] [--for 10s]. --help lists the faults.
# Ends with 0 when the cluster was whole again, 1 when it was not in time, 3 when the fault did not take effect, 130 after Ctrl-C.
set -euo pipefail
cd "$(dirname "$0")/../.."
scripts/setup.sh
exec .venv/bin/python scripts/chaos/inject.py "$@"
