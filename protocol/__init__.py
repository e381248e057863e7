"""The words every room shares: values, errors, limits, requests, doors, and the wire codec.

Nothing here performs input or output, looks at a clock, or starts a thread.
"""
