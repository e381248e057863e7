"""The one place that says which version this is.

`pyproject.toml` reads it, the node answers with it on every surface, and the
Python package metadata carries it in the spelling of PEP 440 (`0.2.0b0`).
"""

VERSION = "0.2.0-beta"
