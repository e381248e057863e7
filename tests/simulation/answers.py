"""Placeholders in an expected answer for values that can't be predicted exactly."""

from __future__ import annotations

from typing import Any

ANYTHING = "whatever it may be"
"""Stands for an answer that only the node can know."""


class AtLeast(dict[str, Any]):
    """An object that has these fields, whatever else it has."""
