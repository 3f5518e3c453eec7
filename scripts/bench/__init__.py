"""Figures as ratios: ours and a reference, interleaved in one run on one machine (performance 5). `make bench`."""

import os

# Before the first import of grpc: servers are started here as child processes, and its fork handlers only complain.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
