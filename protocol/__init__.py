"""Types shared by all rooms: values, errors, limits, requests, interfaces to the environment, and
the wire codec.

Nothing here performs input or output, reads a clock, or starts a thread.
"""
