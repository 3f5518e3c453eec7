"""Runs with an anomaly planted in each, and runs without one: what the judges of a run must tell apart.

`world` plays a sound run from a seed, in virtual time. `anomalies` are the ways in which one goes wrong, by the rows of the
table in docs/verification/histories.md. `python -m planted` judges all of them, on this machine and on Spark, and writes it.
"""
