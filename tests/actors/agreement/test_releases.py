"""What is said of releases of etcd, and to whom."""

from __future__ import annotations

import pytest

from actors.agreement import EtcdAgreement, EtcdCredentials
from actors.etcd_releases import known
from tests.actors.agreement.etcds import EtcdProcess, etcd_process, needs_etcd


@pytest.mark.parametrize(
    ("version", "issues"),
    [
        ("3.4.23", [15247, 17780]),
        ("3.4.30", [15247, 17780]),
        ("3.4.31", [17780]),
        ("3.4.32", []),
        ("3.5.0", [15247, 17780, 13766]),
        ("3.5.3", [15247, 17780]),
        ("3.5.12", [15247, 17780]),
        ("3.5.13-rc.0", [17780]),
        ("3.5.14", []),
        ("3.6.0", []),
        ("4.0.0", []),
        ("None", []),
        ("", []),
    ],
)
def test_a_release_has_what_was_mended_behind_it(version: str, issues: list[int]) -> None:
    found = known(version)
    assert len(found) == len(issues)
    assert all(f"issue {issue};" in said for issue, said in zip(issues, found, strict=True))


def test_one_that_nobody_tried_is_named() -> None:
    (said,) = known("3.3.25")
    assert "older" in said


@needs_etcd
async def test_who_answers_is_looked_at(tmp_path_factory: pytest.TempPathFactory) -> None:
    with etcd_process(tmp_path_factory.mktemp("etcd")) as found:
        version = _version(found)
        nobody = "http://127.0.0.1:1"
        door = EtcdAgreement(
            [nobody, found.endpoint, found.endpoint], "s", EtcdCredentials(("root", "planted"))
        )
        assert await door.faults() == known(version)
    away = EtcdAgreement(["http://etcd.invalid:2379"], "s", EtcdCredentials(("root", "planted")))
    (said,) = await away.faults()
    assert "only over https" in said and "planted" not in said
    away = EtcdAgreement(
        ["http://etcd.invalid:2379"], "s", EtcdCredentials(("root", "planted"), in_clear=True)
    )
    (said,) = await away.faults()
    assert "unencrypted" in said and "planted" not in said


def _version(etcd: EtcdProcess) -> str:
    import http.client
    import json

    asked = http.client.HTTPConnection("127.0.0.1", etcd.port, timeout=10)
    asked.request("GET", "/version")
    version = json.loads(asked.getresponse().read())["etcdserver"]
    asked.close()
    return str(version)
