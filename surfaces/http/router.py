"""Router: finds the route of a request in the table of `routes.py`."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.errors import BadRequest, NoSuchRoute, WrongMethod
from surfaces.http import console, cors, spaces, vaults
from surfaces.http.exchange import Exchange, Route
from surfaces.http.head import RequestHead
from surfaces.http.shared import Http


class Router:
    """Finds the route of a request, and answers OPTIONS and wrong methods from the same table."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._paths: dict[str, dict[str, Route]] = {}
        everything = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"]
        self.allowed: dict[str, list[str]] = {"*": everything}
        for route in routes:
            methods = self._paths.setdefault(route.path, {})
            methods[route.method] = route
            if route.method == "GET":
                methods["HEAD"] = route
        for path, methods in self._paths.items():
            methods["OPTIONS"] = Route("OPTIONS", path, lean=self._options)
            self.allowed[path] = list(methods)
        self._paths["*"] = {"OPTIONS": Route("OPTIONS", "*", lean=self._options)}

    def _options(self, _surface: Http, exchange: Exchange) -> Options:
        return Options(exchange, self.allowed)

    def route(self, method: str, path: str) -> Route:
        """Return the route of a method and a path of the table."""
        return self._paths[path][method]

    def find(self, head: RequestHead) -> Route:
        """Return the route of a request.

        :raises NoSuchRoute: no such path
        :raises WrongMethod: the path has other methods
        :raises BadRequest: the body is of a type that the route does not take
        """
        path = head.path
        if path.startswith("/kv/"):
            path = spaces.template(path) or path
        elif path.startswith("/vault/"):
            path = vaults.template(path) or path
        elif path.startswith("/console/"):
            path = console.template(path) or path
        methods = self._paths.get(path)
        if methods is None:
            raise NoSuchRoute(f"there is no {head.path}")
        route = methods.get(head.method)
        if route is None:
            allow = self.allowed[path]
            raise WrongMethod(f"{head.path} takes {', '.join(allow)}", allow=allow)
        if head.has_body and route.accepts:
            _check_type(route, head)
        return route


class Options:
    """Delegate of OPTIONS: the methods of a path, and CORS preflights of declared origins."""

    def __init__(self, exchange: Exchange, allowed: dict[str, list[str]]) -> None:
        self._exchange = exchange
        self._allowed = allowed

    def on_connection_close(self) -> None:
        """Do nothing: the response was sent at once."""

    def finish(self) -> None:
        """Answer the methods."""
        route = self._exchange.route
        assert route is not None
        allow = ", ".join(self._allowed[route.path])
        fields, head = b"Allow: %s\r\n" % allow.encode("ascii"), self._exchange.head
        if head is not None and b"origin" in head.fields:
            origins = self._exchange.connection.surface.node.status().origins
            fields += cors.preflight(head, origins, allow)
        self._exchange.reply(204, fields=fields)


def media_type(head: RequestHead) -> str:
    """Return the media type of the body without parameters, lower case; empty if the client sent
    none.

    :raises BadRequest: a charset other than UTF-8
    """
    declared = head.fields.get(b"content-type")
    if declared is None:
        return ""
    kind, _, parameters = declared.decode("latin-1").lower().partition(";")
    for parameter in parameters.split(";"):
        name, _, value = parameter.strip().partition("=")
        if name == "charset" and value.strip('"') not in ("utf-8", "utf8", "us-ascii"):
            raise BadRequest(f"the charset {value} is not supported: use UTF-8")
    return kind.strip()


def _check_type(route: Route, head: RequestHead) -> None:
    if head.fields.get(b"content-encoding", b"identity").lower() != b"identity":
        raise BadRequest("Content-Encoding is not supported: send the body uncompressed")
    kind = media_type(head)
    if kind and kind not in route.accepts:
        wanted = ", ".join(route.accepts)
        told = f"{route.path} reads {wanted}, not {kind}"
        if kind == "application/x-www-form-urlencoded":
            told += f"; with curl, add -H 'Content-Type: {route.accepts[0]}'"
        raise BadRequest(told, accepts=list(route.accepts))
