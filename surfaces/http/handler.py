"""Base class of the routes that are answered through Tornado's `Application`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from tornado.httputil import HTTPHeaders
from tornado.web import HTTPError, RequestHandler

from protocol import jsonvalues
from protocol.errors import BadRequest, Failed, NotAllowed, Refusal
from protocol.values import check_unicode
from surfaces.http import answers
from surfaces.http.exchange import Exchange
from surfaces.http.head import RequestHead
from surfaces.http.shared import Http

_BY_STATUS: dict[int, type[Refusal]] = {400: BadRequest, 403: NotAllowed}


class Handler(RequestHandler):
    """Handler that writes JSON, and errors in the common shape."""

    @property
    def exchange(self) -> Exchange:
        """The request's exchange."""
        return cast(Exchange, self.request.connection)

    @property
    def surface(self) -> Http:
        """The surface that serves the request."""
        return cast("Http", self.settings["surface"])

    @property
    def asked(self) -> RequestHead:
        """The head of the request."""
        head = self.exchange.head
        assert head is not None
        return head

    def set_default_headers(self) -> None:
        """Start without default headers: the exchange adds those of every response."""
        self._headers = HTTPHeaders()

    def compute_etag(self) -> str | None:
        """Return no entity tag: only cacheable responses have one, and set it themselves."""
        return None

    def head(self, *args: str, **kwargs: str) -> Any:
        """Answer HEAD like GET; Tornado omits the body."""
        return self.get(*args, **kwargs)

    def answer(self, plain: Mapping[str, Any], status: int = 200) -> None:
        """Answer with JSON."""
        self.set_status(status)
        self.set_header("Content-Type", answers.JSON.decode())
        self.finish(jsonvalues.encode_plain(plain))

    def fields(self, *names: str) -> list[str]:
        """Return the strings of a JSON object that has exactly these fields.

        :raises BadRequest: it has other fields, or values that are not strings
        :raises TypeRefused: a string is not valid Unicode
        """
        found = jsonvalues.parse(self.request.body)
        wanted = ", ".join(names)
        if not isinstance(found, dict) or set(found) != set(names):
            raise BadRequest(f"the body must be a JSON object of {wanted}")
        if not all(isinstance(found[name], str) for name in names):
            raise BadRequest(f"{wanted} must be strings")
        for name in names:
            check_unicode(found[name])
        return [found[name] for name in names]

    def log_exception(self, *exc_info: Any) -> None:
        """Log a bug that occurs after the response was sent. Earlier bugs are logged in
        `write_error`; a refusal is an ordinary response."""
        if self._finished and not isinstance(exc_info[1], Refusal | HTTPError):
            self.exchange.report(exc_info[1])

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Answer with an error in the common shape."""
        error = kwargs["exc_info"][1]
        if isinstance(error, HTTPError):
            error = _BY_STATUS.get(status_code, Failed)(error.log_message or error.reason or "")
        if not isinstance(error, Refusal):
            self.exchange.report(error)
            error = Failed(
                f"internal error: the node's log has the trace under {self.exchange.request}"
            )
        self._finished = True
        self.exchange.refuse(error)
