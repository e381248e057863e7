"""A serving node as a process: its first owner, its logs, its end."""

from __future__ import annotations

import json
import os
import platform
import re
import resource
import signal
import socket
import stat
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest

from bench.ports import free_port
from surfaces.command.serving import _warn_in_the_clear
from surfaces.command.stopping import STAGES
from tests import seccomp
from tests.logbook import Logbook
from tests.processes import PASSWORD, NodeProcess, begin, command_line, environment, run, serving
from tests.reliability import faulty


def stages(node: NodeProcess) -> list[tuple[int, str]]:
    return [(line["stage"], line["does"]) for line in node.lines if line["event"] == "stopping"]


def test_both_surfaces_answer_and_the_directory_is_private(tmp_path: Path) -> None:
    with serving(tmp_path / "store") as node:
        assert node.request("GET", "/health", user=None).json["status"] == "well"
        assert node.request("GET", "/ready", user=None).json["ready"] is True
        with socket.create_connection(node.address("wire")):
            pass
        for path in [tmp_path / "store", *(tmp_path / "store").rglob("*")]:
            assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_serving_other_machines_without_tls_is_warned_of(logbook: Logbook, tmp_path: Path) -> None:
    logbook.allow("without TLS")
    _warn_in_the_clear([("127.0.0.1", 1), ("::1", 1), ("127.0.1.1", 2)])
    assert not logbook.events
    _warn_in_the_clear([("127.0.0.1", 1), ("0.0.0.0", 8000), ("::", 8001), ("10.0.0.7", 1)])
    (line,) = logbook.events
    assert line["addresses"] == ["0.0.0.0:8000", "[::]:8001", "10.0.0.7:1"]
    with serving(tmp_path / "store") as node:
        assert not [line for line in node.lines if "TLS" in line["event"]]


@pytest.mark.parametrize("signals", [[signal.SIGINT], [signal.SIGTERM] * 5], ids=repr)
def test_a_signal_ends_it_in_four_stages_and_another_skips_none(
    tmp_path: Path, signals: list[signal.Signals]
) -> None:
    with serving(tmp_path / "store") as node:
        for each in signals:
            node.signal(each)
        assert node.wait() == 0
        assert stages(node) == list(enumerate(STAGES, 1))
        assert node.events().index("node stopped") > node.events().index("stopping")


UNSET = {"STORE_USER": "", "STORE_PASSWORD": ""}


def test_a_generated_password_goes_to_a_file_and_to_no_journal(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with serving(store, **UNSET) as node:
        (told,) = [line for line in node.lines if line["event"].startswith("first owner")]
        path = Path(told["file"])
        assert path == store / "FIRST-PASSWORD" and told["user"] == "root"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        password = path.read_text().strip()
        assert len(password) >= 16
        body = {"user": "root", "password": password}
        assert node.request("POST", "/session", body, user=None).status == 200
        node.stop()
        assert password not in json.dumps(node.lines)
    with serving(store, **UNSET) as node:
        assert node.request("POST", "/session", body, user=None).status == 200
        node.stop()
        assert not any("first owner" in event for event in node.events())


def test_a_password_that_can_not_be_kept_makes_no_owner(tmp_path: Path) -> None:
    store = tmp_path / "store"
    (store / "FIRST-PASSWORD").mkdir(parents=True)  # it can't be replaced by a file
    ended = run(str(store), "--http", "127.0.0.1:0", **UNSET)
    assert ended.returncode == 1, "it is a directory of somebody else's"
    (store / "FIRST-PASSWORD").rmdir()
    with serving(store, **UNSET) as node:
        node.stop()
    (store / "FIRST-PASSWORD").unlink()


def test_a_person_is_shown_it_once(tmp_path: Path) -> None:
    parent, child = os.openpty()
    words = command_line(str(tmp_path / "store"), "--http", "127.0.0.1:0")
    process = subprocess.Popen(
        words, env=environment(**UNSET), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=child,
    )  # fmt: skip
    os.close(child)
    shown = b""
    while b"ready" not in shown:
        shown += os.read(parent, 4096)
    process.terminate()
    assert process.wait(60) == 0
    os.close(parent)
    assert re.search(rb"first owner: root, password: (\S+) \(shown only once\)", shown)
    assert not (tmp_path / "store" / "FIRST-PASSWORD").exists()


def test_off_a_terminal_every_line_is_one_json_object(tmp_path: Path) -> None:
    more = ("--http", "127.0.0.1:0", "--serve", "127.0.0.1:0", "--slow", "1us")
    with serving(tmp_path / "store", *more, **UNSET) as node:
        password = (tmp_path / "store" / "FIRST-PASSWORD").read_text().strip()
        who = ("root", password)
        user = "DEFINE USER u ROLE owner PASSWORD 'canary1234'"
        text = f"LET $x = 1; DEFINE NAMESPACE a; {user}; SELECT * FROM nowhere"
        answer = node.request("POST", "/script", {"script": text}, user=who)
        assert answer.status == 400, answer.body
        refused = answer.json["error"]
        figures = node.request("GET", "/metrics", user=None).body.decode()
        assert re.search(r"^store_slow_statements_total [1-9]", figures, re.MULTILINE)
        assert re.search(r'^store_wire_requests_total{kind="RUN"} 0', figures, re.MULTILINE)
        taken = str(node.address("http")[1])
        ended = run(str(tmp_path / "other"), "--http", f"127.0.0.1:{taken}")
        (line,) = ended.stderr.splitlines()
        told = json.loads(line)
        assert (ended.returncode, told["level"]) == (1, "error")
        assert told["event"].startswith("storenode: ") and "the port is in use" in told["event"]
        node.stop()
        assert not [line for line in node.lines if "plain" in line or "timestamp" not in line]
        lines = [line for line in node.lines if line.get("request") == refused["request"]]
        (found,) = [line for line in lines if line["event"] == "refused"]
        assert (found["code"], found["statement"]) == (refused["code"], refused["statement"])
        assert found["committed"] == refused["detail"]["committed"] and found["level"] == "info"
        slow = [line for line in lines if line["event"] == "slow statement"]
        (hashed,) = [line for line in slow if line["statement"] == 3]
        assert hashed["text"] == "DEFINE USER u ROLE owner PASSWORD '...'"
        assert hashed["user"] == "root" and hashed["took_ms"] > 0
        assert "canary" not in json.dumps(node.lines)


def test_owner_of_the_environment_signs_in_and_its_password_is_never_logged(tmp_path: Path) -> None:
    with serving(tmp_path / "store", STORE_USER="ana") as node:
        body = {"user": "ana", "password": PASSWORD}
        token = node.request("POST", "/session", body, user=None).json["token"]
        refused = {"user": "ana", "password": "canary-of-the-test"}
        assert node.request("POST", "/session", refused, user=None).status == 401
        node.stop()
        assert "first owner: ana, with the password of STORE_PASSWORD" in node.events()
        logged = json.dumps(node.lines)
        for secret in (PASSWORD, token, "canary-of-the-test"):
            assert secret not in logged


def test_a_first_owner_that_comes_too_late_is_said_to_do_nothing(tmp_path: Path) -> None:
    late = "STORE_USER and STORE_PASSWORD are ignored: the store already has users"
    with serving(tmp_path / "store", STORE_USER="ana") as node:
        node.stop()
        assert late not in node.events()
    with serving(tmp_path / "store", STORE_USER="bo", STORE_PASSWORD="another one") as node:
        body = {"user": "bo", "password": "another one"}
        assert node.request("POST", "/session", body, user=None).status == 401
        node.stop()
        assert late in node.events()


def test_a_store_with_users_does_not_ask_what_its_first_owner_would_be(tmp_path: Path) -> None:
    """A shell signs in by the same variables, at another node too."""
    with serving(tmp_path / "store", STORE_USER="ana") as node:
        node.stop()
    for variables in ({"STORE_PASSWORD": ""}, {"STORE_USER": "", "STORE_PASSWORD": "short"}):
        with serving(tmp_path / "store", **variables) as node:
            body = {"user": "ana", "password": PASSWORD}
            assert node.request("POST", "/session", body, user=None).status == 200
            node.stop()


def test_service_manager_is_told(tmp_path: Path) -> None:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(path)
        manager.settimeout(60)
        with serving(tmp_path / "store", NOTIFY_SOCKET=path) as node:
            assert manager.recv(100) == b"READY=1"
            node.signal()
            assert manager.recv(100) == b"STOPPING=1"
            assert node.wait() == 0


def start_with_stderr(directory: Path, port: int, stderr: int) -> subprocess.Popen[bytes]:
    words = (str(directory), "--http", f"127.0.0.1:{port}")
    return begin(*words, more={}, stdout=subprocess.DEVNULL, stderr=stderr)


def wait_ready(process: subprocess.Popen[bytes], port: int) -> None:
    while process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready") as answer:
                assert answer.status == 200
                return
        except OSError:
            time.sleep(0.01)  # tried without a rest, it would take the processor from the node
    raise AssertionError(f"ended with {process.returncode}")


def write_some(directory: Path, port: int, count: int) -> None:
    node = NodeProcess(directory)
    node.lines = [{"event": "ready", "http": f"127.0.0.1:{port}"}]
    node.script("DEFINE NAMESPACE IF NOT EXISTS a")
    for number in range(count):
        answer = node.script(f"DEFINE NAMESPACE n{number}")
        assert answer["results"][0]["kind"]


def test_blocked_stderr_holds_nothing_up(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    try:
        while True:  # full before the node says its first word
            os.write(writing, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(writing, True)
    port = free_port()
    process = start_with_stderr(tmp_path / "store", port, writing)
    try:
        wait_ready(process, port)
        write_some(tmp_path / "store", port, 20)
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        os.close(reading)
        os.close(writing)


def test_closed_stderr_is_survived_and_no_file_takes_its_place(tmp_path: Path) -> None:
    port = free_port()
    words = command_line(str(tmp_path / "store"), "--http", f"127.0.0.1:{port}")
    process = subprocess.Popen(
        ["sh", "-c", 'exec "$@" 2>&- >&- <&-', "sh", *words], env=environment()
    )
    try:
        wait_ready(process, port)
        write_some(tmp_path / "store", port, 5)
        for number in (0, 1, 2):
            assert os.readlink(f"/proc/{process.pid}/fd/{number}") == "/dev/null"
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    assert run(str(tmp_path / "store"), "--health").stdout.startswith("well: ")


def test_failed_log_ends_the_process_with_an_error(tmp_path: Path) -> None:
    """A limit on the size of files makes the log's next write fail for good."""
    directory = tmp_path / "store"
    with serving(directory) as node:
        node.script("DEFINE NAMESPACE before")
        resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE, (8, 8))
        answer = node.script("DEFINE NAMESPACE after")
        assert answer["error"]["code"] == "UnknownOutcome"
        assert node.wait() == 1
        assert "node failed" in node.events()
    with serving(directory) as node:
        names = str(node.script("INFO FOR STORE")["results"][0]["value"])
        assert "before" in names
        assert "after" not in names


@pytest.mark.skipif(platform.machine() not in seccomp.NUMBERS, reason="an unknown machine")
def test_courtesies_that_the_system_refuses_keep_no_node_from_serving(tmp_path: Path) -> None:
    (tmp_path / "backups").mkdir()
    words = (*NodeProcess.words, "--backup-dir", str(tmp_path / "backups"))
    refused = {
        "setpriority": "EPERM",
        "fadvise64": "ENOSYS",
        "fallocate": "EACCES",
        "sched_setscheduler": "EPERM",
    }
    node = NodeProcess(tmp_path / "store", words, under=seccomp.under(refused))
    node.spawn()
    try:
        node.wait_ready()
        assert node.script("DEFINE NAMESPACE a; BACKUP TO 'whole'")["results"]
        assert list((tmp_path / "backups").iterdir())
        assert node.stop() == 0
    finally:
        node.end()


def test_a_thread_that_ends_ends_the_process_with_its_name_and_why(tmp_path: Path) -> None:
    """By what Python's threads end of without a word."""
    faults = {faulty.FAULTS: "log-thread-ends"}
    node = NodeProcess(tmp_path / "store", more=faults, module=faulty.MODULE)
    node.spawn()
    try:
        assert node.wait() == 1
        (failed,) = [line for line in node.lines if line["event"] == "node failed"]
        assert (failed["actor"], failed["reason"]) == ("LogActor", "the thread has ended")
        assert "LogActor: the thread has ended" in node.lines[-1]["event"]
    finally:
        node.end()


def test_a_node_shows_what_it_was_started_with(tmp_path: Path) -> None:
    with serving(tmp_path / "store") as node:
        info = node.script("INFO FOR NODE")["results"][0]["value"]
        found = {one["surface"]: one["address"] for one in info["surfaces"]}
        wanted = {name: node.at(name) for name in ("http", "wire")}
    assert found == wanted
    assert [one["tls"] for one in info["surfaces"]] == [False, False]
    assert info["settings"]["directory"] == str(tmp_path / "store")
    assert info["settings"]["unseal_for"] == {"$dur": "10m"}
    assert info["settings"]["cert"] is None
