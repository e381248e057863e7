"""Deterministic simulation: the node's environment (clock, disk, network, loop) in seeded, faulty
forms, and the rigs that run whole nodes and clusters in it."""
