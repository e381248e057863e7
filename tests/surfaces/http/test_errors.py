"""One shape of an error on every route, whatever is wrong."""

from __future__ import annotations

from protocol.errors import CATALOGUE
from surfaces.http.routes import ROUTES
from tests.surfaces.http.raw import Answer, Raw
from tests.tables import case

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
PATHS = sorted({route.path for route in ROUTES})


def check_error(answer: Answer, code: str) -> None:
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
    assert answer.fields["store-request"].startswith("r-")
    assert answer.fields["store-version"]
    assert answer.fields["cache-control"]
    assert answer.fields["date"].endswith(" GMT")
    assert answer.fields["x-content-type-options"] == "nosniff"
    assert "server" not in answer.fields
    assert not any(name.startswith("access-control") for name in answer.fields)


async def test_a_wrong_method_names_the_right_ones(raw: Raw) -> None:
    for path in PATHS:
        with case(path):
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


async def test_options_names_the_methods(raw: Raw) -> None:
    for path in [*PATHS, "*"]:
        with case(path):
            answer = await raw.ask("OPTIONS", path)
            assert (answer.status, answer.body) == (204, b"")
            assert "OPTIONS" in answer.fields["allow"]
            check_common(answer)


async def test_an_unknown_path(raw: Raw) -> None:
    for path in ("/no", "/health/", "/Health", "//", "/%68ealth", "/script/x"):
        for method in METHODS:
            if method != "HEAD":
                with case(path, method):
                    check_error(await raw.ask(method, path), "NoSuchRoute")


async def test_another_host_is_misdirected(raw: Raw) -> None:
    for route in ROUTES:
        if route.path != "/health":
            with case(route.method, route.path):
                line = f"{route.method} {route.path} HTTP/1.1"
                await raw.send(f"{line}\r\nHost: other.example\r\n\r\n".encode())
                check_error(await raw.answer(), "MisdirectedRequest")


async def test_addresses_and_localhost_are_this_node(raw: Raw) -> None:
    hosts = "localhost LOCALHOST:8000 127.0.0.1 10.1.2.3:80 [::1] [::1]:80 a.localhost"
    for host in hosts.split():
        with case(host):
            await raw.send(f"GET /health HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            assert (await raw.answer()).status == 200


async def test_a_refused_request_with_a_small_body_leaves_the_connection_in_step(raw: Raw) -> None:
    refused = await raw.ask("POST", "/no", b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    check_error(refused, "NoSuchRoute")
    assert (await raw.ask("GET", "/ready")).json["ready"] is True
