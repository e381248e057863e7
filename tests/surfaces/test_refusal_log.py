"""The request that a refusal names is found in the log, and nothing of what was sent."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from storeclient import errors
from surfaces import logs
from surfaces.logs import RefusalLog
from tests.clients.real import client_of
from tests.logbook import Logbook
from tests.surfaces.http.conftest import bearer, node, port, raw, serve, surface
from tests.surfaces.http.raw import Raw

__all__ = ["bearer", "node", "port", "raw", "serve", "surface"]


async def test_over_http(raw: Raw, bearer: str, logbook: Logbook) -> None:
    answer = await raw.run("THROW 'canary'", bearer)
    (line,) = logbook.refusals
    assert line["request"] == answer.error["request"] and line["level"] == "info"
    assert (line["code"], line["status"], line["line"]) == ("Thrown", 409, 1)
    assert line["route"] == "/script" and "canary" not in str((logbook.events, logbook.refusals))
    nobody = await raw.ask("GET", "/script")
    found = logbook.refusals[1:]
    assert [one["request"] for one in found] == [nobody.error["request"]]


async def test_over_the_wire(tmp_path: Path, logbook: Logbook) -> None:
    async with client_of(tmp_path / "store", "RETURN 1") as client:
        with pytest.raises(errors.Thrown) as refused:
            await client.run("DEFINE SPACE s; THROW 'canary'")
        with pytest.raises(errors.NotASpace) as other:
            await client.cache("shop", "main", "nowhere").get("k")
        found = {one["request"]: one for one in logbook.refusals}
        line = found[refused.value.request]
        assert line["committed"] == refused.value.committed and line["surface"] == "wire"
        assert found[other.value.request]["code"] == "NotASpace"
        assert "canary" not in str((logbook.events, logbook.refusals))


async def test_a_flood_and_what_is_ordinary(
    logbook: Logbook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "REFUSALS_A_SECOND", 3)
    log = RefusalLog("http")
    # One second, as long as the test takes.
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: 1.5)
    error = {"code": "Thrown", "status": 409, "detail": {}, "message": "canary"}
    for n in range(10):
        log.say(error, f"r-{n}", known=True)
    log.say(error | {"code": "NoKey"}, "r-none", known=True)
    log.say(error, "r-anybody", known=False)
    log.say(error | {"code": "Failed"}, "r-bug", known=True)
    log.close()
    refused = [one["request"] for one in logbook.refusals if "request" in one]
    assert refused == ["r-0", "r-1", "r-2", "r-3", "r-none"]
    levels = {one["request"]: one["level"] for one in logbook.refusals if "request" in one}
    assert levels["r-none"] == "debug" and levels["r-0"] == "info"
    (counted,) = [one for one in logbook.refusals if "times" in one]
    assert counted["times"] == {"refused": 7} and counted["level"] == "info"
