"""Version of this client."""

from typing import Final

VERSION: Final = "0.2.0b0"
