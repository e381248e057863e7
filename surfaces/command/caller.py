"""Caller of command line scripts: a process that may open the directory has every privilege."""

from __future__ import annotations

from typing import Final

from protocol.requests import Caller

OPERATOR: Final = Caller(
    user="operator", role="owner", space=None, session=None, surface="command", address="local"
)
