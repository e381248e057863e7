"""GET /backup: a backup as a file.

It runs one BACKUP statement like any script: authorized, counted, kept in the audit trail, ended by
KILL or when the client disconnects. The backup is complete in a file of the node before its first
byte is sent. So every refusal has a normal error response, and the Content-Length is known.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Final

from tornado.httputil import HTTPHeaders, ResponseStartLine

from actors.runtime import ask_now
from protocol import limits
from protocol.errors import BadRequest
from protocol.requests import HeldFile, RunScript
from surfaces.http.callers import caller
from surfaces.http.queries import integer
from surfaces.http.running import RunningDelegate, without_place

FORMS: Final[dict[str, str]] = {"snapshot": "STATE", "log": "LOG", "script": "SCRIPT"}
"""Values of `as`, with the keyword of the statement."""
EXTENSIONS: Final = {"snapshot": ".storesnap", "log": ".storelog", "script": ".storeql"}
PART_BYTES: Final = 256 * limits.KIB
"""Bytes read and sent at once; the next part follows when the client has kept up (flow control)."""


class BackupDelegate(RunningDelegate):
    """Delegate of one backup request."""

    async def _answer(self) -> None:
        exchange = self._exchange
        assert exchange.head is not None
        who = await caller(exchange)
        statement = asked(exchange.parameters())
        run = RunScript(who, statement, exchange.request, hands_over=tuple(FORMS.values()))
        self._running = not exchange.connection.closed
        if self._running:
            answer = await ask_now(self._surface.node.scripts, run)
            self._running = False
            if answer.refusal is not None:
                raise without_place(answer.refusal)
            assert answer.file is not None, "a backup is handed over"
            await self._send(answer.file)

    async def _send(self, file: HeldFile) -> None:
        exchange, head = self._exchange, self._exchange.head
        assert head is not None
        try:
            if exchange.connection.closed:
                return
            await exchange.write_headers(ResponseStartLine("HTTP/1.1", 200, "OK"), _fields(file))
            if head.method == "HEAD":
                return
            at = 0
            while at < file.size and not exchange.connection.closed:
                data = await file.read(at, PART_BYTES)
                at += len(data)
                await exchange.write(data)
        finally:
            file.close()


def asked(query: dict[str, str]) -> str:
    """Return the BACKUP statement of a request.

    :raises BadRequest: a parameter is invalid
    """
    form = query.get("as", "snapshot")
    if form not in FORMS:
        raise BadRequest(f"as must be one of {', '.join(FORMS)}, not {form[:40]!r}")
    statement = f"BACKUP {FORMS[form]}"
    if "from" not in query:
        return statement
    if form != "log":
        raise BadRequest("from needs as=log: it is the first sequence of a log")
    first = integer(query["from"], "from")
    if first < 1:
        raise BadRequest(f"from must be a sequence of 1 or more, not {first}")
    return f"{statement} FROM {first}"


def _fields(file: HeldFile) -> HTTPHeaders:
    name = f"store-{file.sequence}{EXTENSIONS[file.form]}"
    return HTTPHeaders(
        {
            "Content-Type": "application/octet-stream",
            "Content-Length": str(file.size),
            "Content-Disposition": f'attachment; filename="{name}"',
            "Store-Backup-Form": file.form,
            "Digest": f"sha-256={b64encode(file.sha256).decode('ascii')}",
        }
    )
