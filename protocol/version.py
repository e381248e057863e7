"""Version of this release, and kind of this build.

`pyproject.toml` reads it, the node reports it on every surface, and the Python package metadata
carries it in the spelling of PEP 440 (`0.2.0b0`).
"""

from __future__ import annotations

from typing import Final

from protocol import values

VERSION = "0.2.0-beta"
BUILD: Final = "plain" if values.__file__.endswith(".py") else "compiled"
"""`compiled`: the modules of `compiling/modules.py` are C. The answers are the same."""
