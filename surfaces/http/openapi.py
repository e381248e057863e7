"""GET /openapi.json: the table of routes as OpenAPI 3.1."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from protocol.errors import CATALOGUE
from protocol.version import VERSION
from surfaces.http import answers
from surfaces.http.exchange import Route
from surfaces.http.handler import Handler
from surfaces.http.operation import SCHEMAS, STRING, Json, RouteParameter, content_of, ref

EVERYWHERE: Final = (400, 404, 405, 408, 413, 421, 431, 500, 501, 503, 505)
"""Statuses of any route: the request is refused before the route gets it, or the node has no room
or fails."""

IN_PATH: Final = {
    "hash": "hash of all files, as in the page",
    "file": "the rest of the path",
    "ns": "the namespace",
    "db": "the database",
    "space": "the cache space",
    "key": "the rest of the path, percent-encoded once",
    "vault": "the vault",
}
"""Parts of paths, by the name in their templates."""

_SECURITY: Final[dict[str, list[Json]]] = {
    "none": [],
    "optional": [{}, {"token": []}, {"password": []}],
    "required": [{"token": []}, {"password": []}],
}


def document(routes: Sequence[Route]) -> Json:
    """Return the OpenAPI document."""
    paths: Json = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "storenode", "version": VERSION},
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "password": {"type": "http", "scheme": "basic"},
            },
        },
    }


def _operation(route: Route) -> Json:
    described = route.operation
    assert described is not None, f"{route.path} is not described"
    name = re.sub(r"\W+", "_", route.path).strip("_") or "home"
    found: Json = {
        "operationId": f"{route.method.lower()}_{name}",
        "summary": described.summary,
        "security": _SECURITY[route.credential],
        "responses": _responses(route),
    }
    if described.description is not None:
        found["description"] = described.description
    in_path = [
        RouteParameter(name, IN_PATH[name], required=True)
        for name in re.findall(r"{(\w+)}", route.path)
    ]
    parameters = [
        {
            "name": one.name, "in": place, "description": one.text, "schema": one.schema,
            **({} if place == "header" else {"required": one.required}),
        }
        for place, of_place in (
            ("path", in_path), ("query", route.query), ("header", described.headers),
        )
        for one in of_place
    ]  # fmt: skip
    if parameters:
        found["parameters"] = parameters
    if route.body is not None:
        schemas = {kind: STRING if kind == "text/plain" else route.body for kind in route.accepts}
        content = {kind: {"schema": schema} for kind, schema in schemas.items()}
        found["requestBody"] = {"required": described.body_required, "content": content}
    return found


def _responses(route: Route) -> Json:
    described = route.operation
    assert described is not None
    responses = dict(described.responses)
    refused = ref(described.refused)
    content = content_of(refused, described.msgpack)
    signed_in = () if route.credential == "none" else (401,)
    for status in sorted({*EVERYWHERE, *signed_in, *described.refusals}):
        shown = {"description": _meaning(status), "content": content}
        before = responses.get(str(status))
        if before is not None:  # the status is used by both a normal response and a refusal
            own = before["content"]["application/json"]["schema"]
            shown = {**before, "content": content_of({"oneOf": [own, refused]})}
        responses[str(status)] = shown
    return dict(sorted(responses.items()))


def _meaning(status: int) -> str:
    codes = [code for code, refusal in CATALOGUE.items() if refusal.status == status]
    return ", ".join(codes)


class OpenApiHandler(Handler):
    """Handler of GET /openapi.json."""

    def get(self) -> None:
        """Answer the description, made once."""
        self.set_header("Content-Type", answers.JSON.decode())
        self.finish(self.surface.description)
