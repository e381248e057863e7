"""Table of all routes. `/openapi.json` describes them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from tornado.web import Application, RequestHandler

from protocol import limits
from surfaces.http import (
    backups,
    console,
    described_vaults,  # noqa: F401  (what it describes)
    feeds,
    metrics,
    openapi,
    probes,
    scripts,
    sessions,
    spaces,
    vaults,
)
from surfaces.http.exchange import Route
from surfaces.http.shared import Http


def _keys(method: str, path: str, value_max: int = 0) -> Route:
    """Return a route of the cache.

    :param value_max: maximum bytes of the value in its body; 0: it takes none
    """
    return Route(
        method, path, lean=spaces.KeyDelegate, credential="required",
        accepts=("text/plain", "application/json", "application/msgpack") if value_max else (),
        body_max=value_max or limits.SMALL_BODY_BYTES,
    )  # fmt: skip


def _of_vault(method: str, path: str, body_max: int = limits.SMALL_BODY_BYTES) -> Route:
    """Return a route of vaults."""
    return Route(
        method, path, lean=vaults.VaultDelegate, credential="required",
        accepts=("application/json",) if method == "POST" and not path.endswith("/seal") else (),
        body_max=body_max,
    )  # fmt: skip


ROUTES: Final = (
    Route("GET", "/", lean=console.Page),
    Route("GET", console.PATH, lean=console.Static),
    Route("GET", "/openapi.json", handler=openapi.OpenApiHandler),
    Route("GET", "/health", lean=probes.Health, probe=True),
    Route("GET", "/ready", lean=probes.Ready, probe=True),
    Route("GET", "/metrics", handler=metrics.MetricsHandler, credential="optional", probe=True),
    Route(
        "POST", "/session", handler=sessions.SessionHandler, credential="optional",
        accepts=("application/json",),
    ),
    Route("DELETE", "/session", handler=sessions.SessionHandler, credential="required"),
    Route(
        "POST", "/password", handler=sessions.PasswordHandler, credential="required",
        accepts=("application/json",),
    ),
    Route(
        "POST", "/script", lean=scripts.ScriptDelegate, credential="required",
        accepts=("text/plain", "application/json", "application/msgpack"),
        body_max=limits.SCRIPT_BYTES,
    ),
    Route("GET", "/watch", handler=feeds.FeedSocket, credential="required", upgrades=True),
    Route("GET", "/backup", lean=backups.BackupDelegate, credential="required"),
    _keys("GET", spaces.LIST),
    _keys("GET", spaces.PATHS["key"]),
    _keys("PUT", spaces.PATHS["key"], limits.CACHE_VALUE_BYTES),
    _keys("DELETE", spaces.PATHS["key"]),
    _keys("POST", spaces.PATHS["swap"], 2 * limits.CACHE_VALUE_BYTES + limits.KIB),
    *(_keys("POST", spaces.PATHS[word]) for word in spaces.OPERATIONS[2:]),
    _of_vault("GET", vaults.ALL),
    *(_of_vault("POST", path) for path in vaults.STORE_PATHS.values()),
    _of_vault("GET", vaults.ONE),
    *(
        _of_vault("POST", path, vaults.BODY_MAX if word == "write" else limits.SMALL_BODY_BYTES)
        for word, path in vaults.VAULT_PATHS.items()
    ),
)  # fmt: skip


def application(surface: Http, routes: Sequence[Route]) -> Application:
    """Return Tornado's application for the routes with a Tornado handler."""
    paths = {route.path: route.handler for route in routes if route.handler is not None}
    rules: list[Any] = [(re.escape(path), handler) for path, handler in paths.items()]
    return Application(rules, surface=surface, log_function=_log_nothing)


def _log_nothing(_handler: RequestHandler) -> None:
    """Do nothing: requests are counted, not logged, and errors are logged where they occur."""
