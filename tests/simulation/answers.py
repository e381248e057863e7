"""Placeholders in an expected answer for values that can't be predicted exactly."""

from __future__ import annotations

from typing import Any

ANYTHING = "whatever it may be"
"""Placeholder for an answer that the model can't predict."""


class AtLeast(dict[str, Any]):
    """Placeholder for an object with at least these fields."""
