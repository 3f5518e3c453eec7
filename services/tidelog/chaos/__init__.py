"""Faults on purpose, under a load that can be verified afterwards."""
