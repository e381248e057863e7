"""A process that agrees in an etcd which wants certificates and a user."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from surfaces.command import etcd
from surfaces.command.arguments import EtcdOptions
from surfaces.command.failures import NotOpened
from tests import canaries
from tests.actors.agreement.etcds import LOGIN, guarded_etcd, needs_etcd
from tests.certificates import self_signed
from tests.logbook import Logbook
from tests.processes import PASSWORD, USER, NodeProcess, serving
from tests.surfaces.command.test_peers import value

HERE = ("--http", "127.0.0.1:0", "--peer", "127.0.0.1:0")
OWNER = {"STORE_USER": USER, "STORE_PASSWORD": PASSWORD}
POLICY = "DEFINE FAILOVER VIA '{}' LEASE 5s ACKS 0 BEHIND 1s PROMOTE AUTO"
COORDINATES = "DEFINE NODE ROLES serving, writable, coordinating"


@needs_etcd
def test_a_node_leads_by_an_etcd_that_is_guarded(tmp_path: Path) -> None:
    assert LOGIN[1].encode().startswith(canaries.PASSWORDS[2]), "what it says is looked through"
    login = tmp_path / "login"
    login.touch(0o600)
    login.write_text("node:wrong\n")
    words = (
        *HERE, "--etcd-ca", str(tmp_path / "etcd.pem"), "--etcd-login", str(login),
        "--etcd-cert", str(tmp_path / "node.pem"), "--etcd-key", str(tmp_path / "node.key"),
    )  # fmt: skip
    with guarded_etcd(tmp_path) as found, serving(tmp_path / "x", *words, **OWNER) as node:
        value(node, COORDINATES)
        policy = POLICY.format(f"https://127.0.0.1:1', '{found.endpoint}")
        refused = node.script(policy)["error"]
        assert refused["code"] == "Busy" and "authentication failed" in refused["message"]
        login.write_text(":".join(LOGIN) + "\n")
        node.signal(signal.SIGHUP)
        assert node.wait_line("etcd credentials reloaded") is not None
        value(node, policy)
        about = value(node, "INFO FOR NODE")
        assert about["life"] == "leading"
        assert about["settings"]["etcd_login"] == str(login)
        assert LOGIN[1] not in str(about)
        assert node.stop() == 0


@needs_etcd
def test_a_user_from_the_environment_stands_in_no_list_of_processes(tmp_path: Path) -> None:
    user = {"STORE_ETCD_USER": LOGIN[0], "STORE_ETCD_PASSWORD": LOGIN[1]}
    words = (
        *HERE, "--etcd-ca", str(tmp_path / "etcd.pem"),
        "--etcd-cert", str(tmp_path / "node.pem"), "--etcd-key", str(tmp_path / "node.key"),
    )  # fmt: skip
    node = NodeProcess(tmp_path / "x", words, {**OWNER, **user}, cold=True)
    with guarded_etcd(tmp_path) as found:
        try:
            node.start()
            value(node, COORDINATES)
            value(node, POLICY.format(found.endpoint))
            shown = Path(f"/proc/{node.process.pid}/cmdline").read_bytes()
            assert b"--etcd-key" in shown and LOGIN[1].encode() not in shown
            assert node.stop() == 0
        finally:
            node.end()


@pytest.mark.parametrize(
    ("names", "why"),
    [
        ({"ca": "none"}, "--etcd-ca: .*none: No such file"),
        ({"ca": "text"}, "--etcd-ca: .*text: no PEM certificates in this file"),
        ({"cert": "none", "key": "a.key"}, "--etcd-cert: .*none: No such file"),
        ({"cert": "a.pem", "key": "none"}, "--etcd-key: .*none: No such file"),
        ({"cert": "a.pem", "key": "b.key"}, "--etcd-cert: .*a.pem: no certificate that matches"),
        ({"login": "open"}, "--etcd-login: .*open: other users may read or write it, .*0666"),
        ({"cert": "a.pem", "key": "open"}, "--etcd-key: .*open: other users may read or write it"),
        ({"login": "none"}, "--etcd-login: .*none: No such file"),
        ({"login": "text"}, "--etcd-login: .*text: expected one line, user:password"),
        ({"login": "lines"}, "--etcd-login: .*lines: expected one line"),
        ({"login": "nobody"}, "--etcd-login: .*nobody: expected one line"),
        ({"login": "bytes"}, "--etcd-login: .*bytes: expected one line"),
        ({"login": "."}, "--etcd-login: .*: Is a directory"),
    ],
)
def test_what_can_not_be_used_stops_the_start(
    tmp_path: Path, names: dict[str, str], why: str
) -> None:
    self_signed(tmp_path, "a")
    self_signed(tmp_path, "b")
    (tmp_path / "text").write_text("planted")
    (tmp_path / "open").write_text("root:planted\n")
    (tmp_path / "lines").write_text("root:planted\nother:planted\n")
    (tmp_path / "nobody").write_text(":planted\n")
    (tmp_path / "bytes").write_bytes(b"root:\xffplanted")
    paths = {name: str(tmp_path / path) for name, path in names.items()}
    for path in tmp_path.iterdir():
        path.chmod(0o666 if path.name == "open" else 0o600)
    told = EtcdOptions(paths.get("ca"), paths.get("cert"), paths.get("key"), paths.get("login"))
    with pytest.raises(NotOpened, match=why) as refused:
        etcd.access(told)
    assert "planted" not in str(refused.value)


def test_what_can_not_be_read_again_changes_nothing(tmp_path: Path, logbook: Logbook) -> None:
    logbook.allow("were not reloaded")
    login = tmp_path / "login"
    login.touch(0o600)
    login.write_text("root:planted")
    told = EtcdOptions(login=str(login))
    used = etcd.access(told)
    login.write_text("nothing")
    etcd.renew(used, told)
    assert used.credential == ("root", "planted")
    login.write_text("root:another")
    etcd.renew(used, told)
    assert used.credential == ("root", "another")
