"""Measure the node from outside, beside peers. `make bench`; nothing here runs inside the node."""
