"""Who a script of the command line runs as: whoever may open the directory may do everything."""

from __future__ import annotations

from typing import Final

from protocol.requests import Caller

OPERATOR: Final = Caller(
    user="operator", role="owner", space=None, session=None, surface="command", address="local"
)
