"""Metrics of ZooKeeper servers for Prometheus, from their `mntr` answers; their own provider is in no package we use."""
