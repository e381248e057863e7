"""The one place that says which version this is."""

from typing import Final

VERSION: Final = "0.1.0b0"
