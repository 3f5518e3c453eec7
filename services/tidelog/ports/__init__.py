"""The five doors to the outside world: clock, net, disk, metadata store, randomness.

Each is a Protocol with a real adapter in `tidelog.runtime` and an in-memory twin in `tidelog.testing`; both pass the same
contract tests. Everything above the ports runs unchanged in the simulator (reliability 4.2).
"""
