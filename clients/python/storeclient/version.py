"""The one place that says which version this is."""

from typing import Final

VERSION: Final = "0.2.0b0"
