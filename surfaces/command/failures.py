"""Failure of a command: its exception, and the text of one. Every command raises it, so this module
imports nothing of the node but the base of its refusals."""

from __future__ import annotations

import os

from protocol.errors import Refusal


class NotOpened(Exception):
    """The command can't be done; the message is one line. Exit code 1."""


def reason(directory: str, fault: BaseException) -> str:
    """Return the reason why a store does not open, in one line with the directory."""
    if isinstance(fault, Refusal):
        return f"{directory}: {fault.code}: {fault.message}"
    if isinstance(fault, OSError) and fault.errno is not None:
        return f"{fault.filename or directory}: {os.strerror(fault.errno)}"
    return str(fault)
