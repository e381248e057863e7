"""One shape of an error on every route, whatever is wrong."""

from __future__ import annotations

import pytest

from protocol.errors import CATALOGUE
from surfaces.http.routes import ROUTES
from tests.surfaces.http.raw import Answer, Raw
from tests.surfaces.http.sockets import KEY

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
PATHS = sorted({route.path for route in ROUTES})


def check_error(answer: Answer, code: str) -> None:
    """The answer is this refusal, in the one shape."""
    error = answer.error
    assert set(answer.json) <= {"error", "results"}
    assert set(error) - {"statement", "line", "column"} == {
        "code", "message", "status", "retry", "detail", "request",
    }  # fmt: skip
    assert error["code"] == code
    assert error["status"] == answer.status == CATALOGUE[code].status
    assert error["retry"] is CATALOGUE[code].retry
    assert isinstance(error["detail"], dict)
    assert error["request"] == answer.fields["store-request"]
    check_common(answer)
    assert answer.fields["content-type"] == "application/json; charset=utf-8"
    assert answer.fields["cache-control"] == "no-store"


def check_common(answer: Answer) -> None:
    """What every answer carries."""
    assert answer.fields["store-request"].startswith("r-")
    assert answer.fields["store-version"]
    assert answer.fields["cache-control"]
    assert answer.fields["date"].endswith(" GMT")
    assert answer.fields["x-content-type-options"] == "nosniff"
    assert "server" not in answer.fields
    assert not any(name.startswith("access-control") for name in answer.fields)


@pytest.mark.parametrize("path", PATHS)
async def test_a_wrong_method_names_the_right_ones(raw: Raw, path: str) -> None:
    allowed = {route.method for route in ROUTES if route.path == path} | {"OPTIONS"}
    allowed |= {"HEAD"} if "GET" in allowed else set()
    for method in METHODS:
        if method in allowed:
            continue
        answer = await raw.ask(method, path)
        if method == "HEAD":
            assert answer.status == 405
        else:
            check_error(answer, "WrongMethod")
        assert set(answer.fields["allow"].split(", ")) == allowed


@pytest.mark.parametrize("path", [*PATHS, "*"])
async def test_options_names_the_methods(raw: Raw, path: str) -> None:
    answer = await raw.ask("OPTIONS", path)
    assert (answer.status, answer.body) == (204, b"")
    assert "OPTIONS" in answer.fields["allow"]
    check_common(answer)


@pytest.mark.parametrize("method", [method for method in METHODS if method != "HEAD"])
@pytest.mark.parametrize("path", ["/no", "/health/", "/Health", "//", "/%68ealth", "/script/x"])
async def test_an_unknown_path(raw: Raw, method: str, path: str) -> None:
    check_error(await raw.ask(method, path), "NoSuchRoute")


@pytest.mark.parametrize(
    "route",
    [route for route in ROUTES if route.path != "/health"],
    ids=lambda route: f"{route.method} {route.path}",
)
async def test_another_host_is_misdirected(raw: Raw, route: object) -> None:
    method, path = route.method, route.path  # type: ignore[attr-defined]
    await raw.send(f"{method} {path} HTTP/1.1\r\nHost: other.example\r\n\r\n".encode())
    check_error(await raw.answer(), "MisdirectedRequest")


UPGRADE = {
    "upgrade": "websocket", "connection": "Upgrade", "sec_websocket_version": "13",
    "sec_websocket_key": KEY,
}  # fmt: skip


@pytest.mark.parametrize(
    "route",
    [route for route in ROUTES if route.credential == "required"],
    ids=lambda route: f"{route.method} {route.path}",
)
async def test_no_credential_and_a_bad_one(port: int, route: object) -> None:
    method, path = route.method, route.path  # type: ignore[attr-defined]
    more = UPGRADE if route.upgrades else {}  # type: ignore[attr-defined]
    for fields, code in (({}, "SignInRefused"), ({"authorization": "Bearer x"}, "SessionEnded")):
        async with await Raw.connect(port) as raw:  # a refused upgrade ends its connection
            answer = await raw.ask(method, path, **fields, **more)
        check_error(answer, code)
        assert answer.fields["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8000", "127.0.0.1", "10.1.2.3:80", "[::1]", "[::1]:80",
             "a.localhost"],
)  # fmt: skip
async def test_addresses_and_localhost_are_this_node(raw: Raw, host: str) -> None:
    await raw.send(f"GET /health HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    assert (await raw.answer()).status == 200


async def test_a_refused_request_with_a_small_body_leaves_the_connection_in_step(raw: Raw) -> None:
    refused = await raw.ask("POST", "/no", b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    check_error(refused, "NoSuchRoute")
    assert (await raw.ask("GET", "/ready")).json["ready"] is True
