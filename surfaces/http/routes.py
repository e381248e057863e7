"""Table of all routes: the router, the handlers and `/openapi.json` go by it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from tornado.web import Application, RequestHandler

from protocol import limits
from surfaces.http import (
    backups,
    console,
    feeds,
    metrics,
    openapi,
    probes,
    scripts,
    sessions,
    space_routes,
    vault_routes,
)
from surfaces.http.exchange import Route
from surfaces.http.operation import (
    BOOLEAN,
    INTEGER,
    STRING,
    Json,
    Operation,
    RouteParameter,
    answers,
    content_of,
    parameter,
    ref,
)
from surfaces.http.shared import Http

_NOT_MODIFIED: Final[Json] = {
    "304": {"description": "not modified: the copy named by If-None-Match is current"}
}
_FOLLOWED: Final = """Follow a table over a WebSocket: every commit that changes it, once, whole and
in order. An error of the feed itself is a message on the socket, and the close code is then 4000
plus its status. See `docs/feeds.md`."""


def _either(well: str, ill: str, schema: str) -> Json:
    """Return the responses of a probe."""
    content = content_of(ref(schema))
    return {
        "200": {"description": well, "content": content},
        "503": {"description": ill, "content": content},
    }


ROUTES: Final = (
    Route(
        "GET", "/", lean=console.Page,
        operation=Operation(
            "The web console",
            {
                "200": {"description": "the page", "content": {"text/html": {"schema": STRING}}},
                **_NOT_MODIFIED,
            },
        ),
    ),
    Route(
        "GET", console.PATH, lean=console.Static,
        operation=Operation(
            "A file of the console",
            {
                "200": {
                    "description": "the file",
                    "content": {
                        kind.decode().partition(";")[0]: {"schema": STRING}
                        for kind in sorted(console.KINDS.values())
                    },
                },
                **_NOT_MODIFIED,
            },
        ),
    ),
    Route(
        "GET", "/openapi.json", handler=openapi.OpenApiHandler,
        operation=Operation("This description", answers("OpenAPI 3.1", {"type": "object"})),
    ),
    Route(
        "GET", "/health", lean=probes.Health, probe=True,
        operation=Operation(
            "Liveness: the node runs and its store is open",
            _either("alive", "not alive", "Health"),
        ),
    ),
    Route(
        "GET", "/ready", lean=probes.Ready, probe=True,
        operation=Operation("Readiness for traffic", _either("ready", "not ready", "Ready")),
    ),
    Route(
        "GET", "/metrics", handler=metrics.MetricsHandler, credential="optional", probe=True,
        operation=Operation(
            "Metrics as Prometheus text",
            {"200": {"description": "figures", "content": {"text/plain": {"schema": STRING}}}},
            (429,),
        ),
    ),
    Route(
        "POST", "/session", handler=sessions.SessionHandler, credential="optional",
        accepts=("application/json",), body=ref("SignIn"),
        operation=Operation(
            "Exchange a password for a token",
            answers("signed in", ref("Session")),
            (403, 409, 422, 429),
            body_required=False,
        ),
    ),
    Route(
        "DELETE", "/session", handler=sessions.SessionHandler, credential="required",
        operation=Operation("Sign out", {"204": {"description": "signed out"}}),
    ),
    Route(
        "POST", "/password", handler=sessions.PasswordHandler, credential="required",
        accepts=("application/json",), body=ref("NewPassword"),
        operation=Operation(
            "Change the caller's own password",
            {"204": {"description": "changed; the user's other sessions have ended"}},
            (409, 422, 429),
        ),
    ),
    Route(
        "POST", "/script", lean=scripts.ScriptDelegate, credential="required",
        accepts=("text/plain", "application/json", "application/msgpack"),
        body_max=limits.SCRIPT_BYTES, body=ref("Script"),
        operation=Operation(
            "Run statements",
            answers("all results", ref("Results"), msgpack=True),
            (403, 409, 410, 422, 423, 429),
            "ScriptRefused",
            msgpack=True,
            headers=(
                RouteParameter("Store-Namespace", "namespace, if the body has no `ns`"),
                RouteParameter("Store-Database", "database, if the body has no `db`"),
                RouteParameter("Store-After", "`after`, if the body has none", INTEGER),
                RouteParameter("Store-Current", "`current`, if the body has none", BOOLEAN),
                RouteParameter("Store-Record", "`record`, if the body has none", BOOLEAN),
            ),
        ),
    ),
    Route(
        "GET", "/watch", handler=feeds.FeedSocket, credential="required", upgrades=True,
        query=(
            parameter("ns", "the namespace", required=True),
            parameter("db", "the database", required=True),
            parameter("table", "the table", required=True),
            parameter(
                "from",
                "sequence of the last known commit; 0: from the beginning of the log",
                type="integer",
            ),
            parameter("store", "store of `from`, from the `open` message"),
            parameter("epoch", "epoch of `from`", type="integer"),
            parameter("actions", "comma-separated, of create, update, delete; default all"),
            parameter("before", "1: with the fields before each change", enum=["0", "1"]),
            parameter("where", "a condition on the record"),
            parameter("after", "a sequence that must be visible on the node first", type="integer"),
        ),
        operation=Operation(
            "Follow a table",
            {"101": {"description": "a WebSocket whose text frames are JSON objects"}},
            (403, 426, 429),
            description=_FOLLOWED,
        ),
    ),
    Route(
        "GET", "/backup", lean=backups.BackupDelegate, credential="required",
        query=(
            parameter("as", "the form; default snapshot", enum=list(backups.FORMS)),
            parameter("from", "first sequence of a log", type="integer", minimum=1),
        ),
        operation=Operation(
            "A backup as a file",
            {
                "200": {
                    "description": "the file",
                    "headers": {
                        name: {"description": text, "schema": STRING}
                        for name, text in (
                            ("Store-Backup-Form", "snapshot, log or script"),
                            ("Content-Disposition", "a file name for it"),
                            ("Digest", "sha-256= and the digest in base64"),
                        )
                    },
                    "content": {
                        "application/octet-stream": {
                            "schema": {"type": "string", "format": "binary"}
                        }
                    },
                }
            },
            (403, 410, 413, 429),
        ),
    ),
    *space_routes.ROUTES,
    *vault_routes.ROUTES,
)  # fmt: skip


def application(surface: Http, routes: Sequence[Route]) -> Application:
    """Return Tornado's application for the routes with a Tornado handler."""
    paths = {route.path: route.handler for route in routes if route.handler is not None}
    rules: list[Any] = [(re.escape(path), handler) for path, handler in paths.items()]
    return Application(rules, surface=surface, log_function=_log_nothing)


def _log_nothing(_handler: RequestHandler) -> None:
    """Do nothing: requests are counted, not logged, and errors are logged where they occur."""
