"""What the routes share that are answered through Tornado's `Application`."""

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
from surfaces.http.head import Head
from surfaces.http.shared import Http

_BY_STATUS: dict[int, type[Refusal]] = {400: BadRequest, 403: NotAllowed}


class Handler(RequestHandler):
    """A handler whose errors have the one shape, and that writes JSON."""

    @property
    def exchange(self) -> Exchange:
        """The request as the surface sees it."""
        return cast(Exchange, self.request.connection)

    @property
    def surface(self) -> Http:
        """The surface that serves it."""
        return cast("Http", self.settings["surface"])

    @property
    def asked(self) -> Head:
        """The head of the request."""
        head = self.exchange.head
        assert head is not None
        return head

    def set_default_headers(self) -> None:
        """Start from nothing: the exchange adds what every answer carries."""
        self._headers = HTTPHeaders()

    def compute_etag(self) -> str | None:
        """Only what may be cached has one, and says so itself."""
        return None

    def head(self, *args: str, **kwargs: str) -> Any:
        """As GET; Tornado leaves the body away."""
        return self.get(*args, **kwargs)

    def answer(self, plain: Mapping[str, Any], status: int = 200) -> None:
        """Answer with JSON."""
        self.set_status(status)
        self.set_header("Content-Type", answers.JSON.decode())
        self.finish(jsonvalues.encode_plain(plain))

    def fields(self, *names: str) -> list[str]:
        """The strings of a JSON object that has exactly these fields.

        :raises BadRequest: it has others, or they are no strings
        :raises TypeRefused: they hold what is not Unicode
        """
        found = jsonvalues.parse(self.request.body)
        wanted = ", ".join(names)
        if not isinstance(found, dict) or set(found) != set(names):
            raise BadRequest(f"the body is a JSON object of {wanted}")
        if not all(isinstance(found[name], str) for name in names):
            raise BadRequest(f"{wanted} are strings")
        for name in names:
            check_unicode(found[name])
        return [found[name] for name in names]

    def log_exception(self, *exc_info: Any) -> None:
        """A refusal is an answer. Anything else is a bug, logged in `write_error`; what fails when
        the answer is out never gets there."""
        if self._finished and not isinstance(exc_info[1], Refusal | HTTPError):
            self.exchange.report(exc_info[1])

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Answer with an error in the one shape."""
        error = kwargs["exc_info"][1]
        if isinstance(error, HTTPError):
            error = _BY_STATUS.get(status_code, Failed)(error.log_message or error.reason or "")
        if not isinstance(error, Refusal):
            self.exchange.report(error)
            error = Failed(f"the node failed on this request; its log has {self.exchange.request}")
        self._finished = True
        self.exchange.refuse(error)
