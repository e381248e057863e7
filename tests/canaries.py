"""S9: passwords and tokens that must be in nothing that a node says, looked for by every test.

Whatever a test hears of a node by the ways below passes here: lines of its standard error, its logs
in this process, answers over HTTP and the wire, refusals and INFO of scripts, metrics among them. A
token is a canary from the answer on that gave it to its owner. What was found fails the test that
heard it, at its end; a test that means it says `canaries.allow(…)`.
"""

from __future__ import annotations

import base64
import re
from collections import deque
from typing import Any, Final

PASSWORDS: Final = tuple(
    text.encode()
    for text in (
        "correct horse", "a better horse", "another horse", "another correct horse", "open sesame",
        base64.b64encode(b"root:correct horse battery").decode(),
    )
)  # fmt: skip
"""How the passwords of all tests begin, and what a client makes of one."""
TOKENS: Final = 64
"""Of a test, the newest so many."""
_TOKEN: Final = re.compile(rb"token\"?'?: ?b?[\"']([A-Za-z0-9._~+/=-]{16,})[\"']")
"""Begins with what has to be there: of megabytes without it a look takes a twentieth as long."""
_AROUND: Final = 60

_tokens: deque[bytes] = deque(maxlen=TOKENS)
_allowed: list[bytes] = []
_found: list[str] = []


def heard(what: str | bytes, where: str) -> None:
    """Look through something that the node has said.

    :param where: for whoever reads of it: `standard error`, `GET /metrics`
    """
    data = what.encode(errors="surrogateescape") if isinstance(what, str) else what
    for token in _TOKEN.findall(data):
        if token not in _tokens:  # this is who it is for
            _tokens.append(token)
            data = data.replace(token, b"", 1)
    for secret in (*PASSWORDS, *_tokens):
        at = data.find(secret)
        if at >= 0 and secret not in _allowed:
            around = data[max(at - _AROUND, 0) : at + len(secret) + _AROUND]
            _found.append(f"{where}: {around!r}")


def heard_message(body: Any, where: str) -> None:
    """Look through a message of the wire."""
    heard(repr(body), where)


def allow(secret: str) -> None:
    """The test at hand puts that where it can be read."""
    _allowed.append(secret.encode())


def begin() -> None:
    """A test begins."""
    _tokens.clear()
    _allowed.clear()
    _found.clear()


def found() -> list[str]:
    """Where there was one in this test."""
    return list(_found)
