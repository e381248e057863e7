"""R19 and R20 for HTTP: the ceiling with as many connections as it allows, and slow clients."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from protocol import limits
from surfaces.http.shared import Deadlines
from tests.surfaces.http.conftest import LONG, Serve, until
from tests.surfaces.http.raw import Raw, request, script

CROWD = Path(__file__).with_name("crowd.py")
EXTRA = 50
Figure = Callable[[str, object], None]


@pytest.fixture
def many_descriptors() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < limits.CONNECTIONS + 1_000:
        pytest.fail(f"this needs {limits.CONNECTIONS + 1_000} open files; {hard} are allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, hard), hard))


@pytest.mark.hard
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("many_descriptors")
async def test_r19_every_connection_that_may_be_held(serve: Serve, figure: Figure) -> None:
    surface = await serve(deadlines=Deadlines(head_s=600, idle_s=600))
    crowd = await asyncio.create_subprocess_exec(
        sys.executable, str(CROWD), str(surface.address[1]), str(limits.CONNECTIONS), str(EXTRA),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert crowd.stdin is not None
    assert crowd.stdout is not None
    try:
        statuses = (await crowd.stdout.readline()).split()
        assert statuses == [b"503"] * EXTRA
        await until(lambda: len(surface.connections) == limits.CONNECTIONS)
        crowd.stdin.write(b"\n")
        milliseconds = float(await crowd.stdout.readline())
    finally:
        crowd.stdin.close()
        await crowd.wait()
    await until(lambda: not surface.connections, seconds=60)
    figure("R19 http connections held", f"{limits.CONNECTIONS}, then {EXTRA} refused")
    figure("R19 http first request after a release", f"{milliseconds} ms")


@pytest.mark.hard
@pytest.mark.timeout(300)
async def test_r19_every_request_that_may_run(serve: Serve, bearer: str, figure: Figure) -> None:
    surface = await serve()
    port = surface.address[1]
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(limits.RUNNING):
            busy = await stack.enter_async_context(await Raw.connect(port))
            await busy.send(script(LONG, bearer))
        await until(lambda: surface.running == limits.RUNNING, seconds=60)
        raw = await stack.enter_async_context(await Raw.connect(port))
        for _ in range(EXTRA):
            assert (await raw.run("RETURN 1;", bearer)).error["code"] == "Busy"
        assert (await raw.ask("GET", "/health")).status == 200
    await until(lambda: not surface.running, seconds=60)
    figure("R19 http requests running", f"{limits.RUNNING}, then {EXTRA} refused")


@pytest.mark.hard
@pytest.mark.timeout(300)
async def test_r20_slow_clients_are_cut_and_others_are_served(
    serve: Serve, bearer: str, figure: Figure
) -> None:
    surface = await serve(deadlines=Deadlines(body_s=10, write_s=10, idle_s=10))
    port, loop = surface.address[1], asyncio.get_running_loop()
    big = script(f"LET $a = '{'x' * 1_000_000}'; RETURN [{', '.join(['$a'] * 8)}];", bearer)
    slow = {
        "head": b"GET /health HTTP/1.1\r\nHost: loc",
        "body": script("RETURN 1;", bearer)[:-1],
        "idle": request("GET", "/health"),
        "nothing": b"",
    }
    async with contextlib.AsyncExitStack() as stack:
        for number in range(500):
            kind = list(slow)[number % len(slow)]
            client = await stack.enter_async_context(await Raw.connect(port))
            await client.send(slow[kind] if number % 50 else big)
        taken: list[float] = []
        while len(surface.connections) > 1:  # the one may be the connection just closed
            async with await Raw.connect(port) as raw:
                began = loop.time()
                assert (await raw.run("RETURN 1;", bearer)).status == 200
                taken.append((loop.time() - began) * 1000)
    p99 = statistics.quantiles(taken, n=100)[98]
    figure("R20 http slow clients", f"500 cut; p99 of {len(taken)} others {p99:.1f} ms")
