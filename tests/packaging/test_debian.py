"""The Debian package: built, installed, run, killed, upgraded and removed, under systemd.

A systemd of its own is booted for it, in a copy on write of this machine's root.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from textwrap import dedent

import pytest

from tests.architecture.sources import ROOT
from tests.docs import tour
from tests.processes import tree

PROGRAMS = {
    "dpkg-deb": "dpkg",
    "dh": "debhelper",
    "mount": "mount",
    "nsenter": "util-linux",
    "systemd-nspawn": "systemd-container",
    "/usr/bin/python3": "python3",
}
HERE = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
MISSING = [name for program, name in PROGRAMS.items() if shutil.which(program) is None]
BOOT_SECONDS = 120
"""A boot that takes longer hangs; a limit on the wait, not a figure to reach."""

pytestmark = [
    pytest.mark.hard,
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: packages are installed"),
]


def ended(*words: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    return subprocess.run(
        words,
        cwd=ROOT,
        env={**os.environ, **HERE, **more},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def good(ran: subprocess.CompletedProcess[str]) -> str:
    """The output of a program that ended well."""
    assert ran.returncode == 0, f"{ran.args}: {ran.stdout}"
    return ran.stdout


def done(*words: str | Path, **more: str) -> str:
    """Run a program to its end, which is a good one. Return its output."""
    return good(ended(*words, **more))


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package of this tree."""
    folder = tmp_path_factory.mktemp("debian")
    done(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder)
    (wheel,) = folder.glob("*.whl")
    pip = Path(sys.executable).with_name("pip")
    return Path(done(ROOT / "packaging/debian/build", wheel, folder, pip).strip())


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A copy on write of this machine's root, without its services."""
    disk = tmp_path / "disk"
    upper, work, root = disk / "upper", disk / "work", disk / "root"
    disk.mkdir()
    mounted = []

    def mount(target: Path, *words: str | Path) -> None:
        ended = subprocess.run(["mount", *words, target], capture_output=True, check=False)
        if ended.returncode != 0:
            pytest.skip(f"can't be mounted here: {ended.stderr.decode().strip()}")
        mounted.append(target)

    try:
        mount(disk, "-t", "tmpfs", "storenode")
        for folder in (upper, work, root):
            folder.mkdir()
        overlay = f"lowerdir=/,upperdir={upper},workdir={work}"
        mount(root, "-t", "overlay", "overlay", "-o", overlay)
        shutil.rmtree(root / "etc/systemd/system")
        (root / "etc/systemd/system").mkdir()
        (root / "usr/sbin/policy-rc.d").unlink(missing_ok=True)
        yield root
    finally:
        for target in reversed(mounted):
            subprocess.run(["umount", target], check=True)


class Machine:
    """A booted systemd, with a network of its own: its loopback.

    :param root: the root of its file system
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._init: str | None = None
        words = ["--boot", "--private-network", "--register=no", "--keep-unit", "--console=pipe"]
        self._process = subprocess.Popen(
            ["systemd-nspawn", f"--directory={root}", "--quiet", *words],
            env={**os.environ, **HERE},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def wait_booted(self) -> None:
        """Wait until its systemd takes commands. Skips the test where none boots."""
        end = time.monotonic() + BOOT_SECONDS
        while time.monotonic() < end:
            if (code := self._process.poll()) is not None:
                assert self._process.stdout is not None
                pytest.skip(f"boots no systemd: {code}, {self._process.stdout.read().decode()}")
            self._init = self._found()
            if self._init is not None:
                asked = self._begin("systemctl", "show-environment")
                if asked.returncode == 0:
                    return
            time.sleep(0.1)
        pytest.fail(f"the machine did not boot in {BOOT_SECONDS} s")

    def _found(self) -> str | None:
        """Its init, once that is in a file system and processes of its own: what runs beside it
        before would change this machine."""
        pid = self._process.pid
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            with suppress(FileNotFoundError):
                status = Path(f"/proc/{child}/status").read_text()
                inside = re.search(r"^NSpid:.*\t1$", status, re.MULTILINE)
                if inside and Path(f"/proc/{child}/root").samefile(self._root):
                    return child
        return None

    def _begin(self, *words: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
        assert self._init is not None
        # Nothing of this environment: a PYTHONPYCACHEPREFIX hides from py3clean what is cached.
        clean = [
            "env",
            "--ignore-environment",
            "--chdir=/",
            *(f"{k}={v}" for k, v in {**HERE, **more}.items()),
        ]
        return ended("nsenter", f"--target={self._init}", "--all", "--wd=/", *clean, *words)

    def run(self, *words: str | Path, **more: str) -> str:
        """Run a program there to its end, which is a good one. Return its output."""
        return good(self._begin(*words, **more))

    def play(self, language: str, code: str) -> str:
        """Run code of a page there, with the client that the package has."""
        client = "/usr/lib/storenode/storenode/clients/python:/usr/lib/storenode"
        program = "bash" if language == "sh" else "/usr/bin/python3"
        return self.run(program, "-c", code, PYTHONPATH=client)

    def stop(self) -> None:
        """Shut it down."""
        self._process.terminate()
        self._process.communicate()


@pytest.fixture
def machine(root: Path) -> Iterator[Machine]:
    """A machine of its own, booted."""
    machine = Machine(root)
    try:
        machine.wait_booted()
        yield machine
    finally:
        machine.stop()


SERVICE = "storenode.service"


def shown(machine: Machine, name: str) -> str:
    """A property of the service."""
    return machine.run("systemctl", "show", "--value", f"--property={name}", SERVICE).strip()


def ask(machine: Machine, script: str) -> str:
    """The last line that the package's shell prints of a script that the first owner runs."""
    password = machine.run("cat", "/var/lib/storenode/FIRST-PASSWORD").strip()
    return machine.run("storenode", "shell", "-c", script, STORE_PASSWORD=password).splitlines()[-1]


def back_up_as_the_page_says(machine: Machine) -> None:
    """Set up the nightly backup, and take the first, which is restored on trial."""
    page = (ROOT / "docs" / "backup.md").read_text()
    steps = page.partition("\n## On a schedule\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"^ *```\n(.*?)^ *```$", steps, re.MULTILINE | re.DOTALL)
    install, define, sign_in, begin = (
        dedent(block).replace("…", "a password of backups") for block in blocks
    )
    machine.play("sh", f"set -e\ncd /usr/lib/storenode/storenode\n{install}")
    ask(machine, define)
    machine.play("sh", f"set -e\n{sign_in}{begin}")
    assert machine.run("systemctl", "is-active", "storenode-backup.timer") == "active\n"


def test_it_is_installed_killed_upgraded_and_removed_with_its_data(
    package: Path, root: Path, machine: Machine, tmp_path: Path
) -> None:
    higher = tmp_path / "higher.deb"
    done("dpkg-deb", "-R", package, tmp_path / "unpacked")
    control = tmp_path / "unpacked" / "DEBIAN" / "control"
    control.write_text(re.sub(r"(?m)^(Version: ).*", r"\g<1>99", control.read_text()))
    done("dpkg-deb", "--root-owner-group", "-Znone", "-b", tmp_path / "unpacked", higher)
    store, backups = root / "var/lib/storenode", root / "var/backups/storenode"
    settings = root / "etc/default/storenode"
    for path in (package, higher):
        shutil.copy(path, root / "root")

    machine.run("dpkg", "-i", f"/root/{package.name}")
    assert shown(machine, "ActiveState") == "active"
    owner = int(machine.run("id", "-u", "storenode"))
    for folder in (store, backups):
        assert folder.stat().st_uid == owner and folder.stat().st_mode & 0o777 == 0o700
    ask(machine, "DEFINE NAMESPACE n; DEFINE DATABASE n.d; USE n.d; DEFINE TABLE t")
    ask(machine, "USE n.d; CREATE t:kept SET x = 7")
    ask(machine, "BACKUP TO 'before.storesnap'")
    assert (backups / "before.storesnap").stat().st_size

    machine.run("systemctl", "stop", SERVICE)
    owner_of = [f"--setenv={one}" for one in ("STORE_USER=root", f"STORE_PASSWORD={tour.PASSWORD}")]
    words = ["systemd-run", "--quiet", "--unit=tour", "--service-type=notify", *owner_of]
    machine.run(*words, *shlex.split(tour.starts()["Debian package"]))
    tour.play(machine.play)
    machine.run("systemctl", "stop", "tour")
    machine.run("systemctl", "start", SERVICE)

    back_up_as_the_page_says(machine)
    assert list(backups.glob("2*.storesnap")) and not list(backups.glob("trial*"))

    first = shown(machine, "MainPID")
    machine.run("systemctl", "kill", "--signal=KILL", SERVICE)
    while shown(machine, "NRestarts") != "1":
        time.sleep(0.1)
    machine.run("systemctl", "start", SERVICE)  # waits for the start that is under way
    second = shown(machine, "MainPID")
    assert second != first and ask(machine, "USE n.d; RETURN t:kept.x") == "7"

    told = 'STORE_OPTIONS="--serve :8001 --slow 5s --backup-dir /var/backups/storenode"\n'
    settings.write_text(told)
    machine.run("dpkg", "-i", f"/root/{higher.name}")
    assert settings.read_text() == told and shown(machine, "ActiveState") == "active"
    third = shown(machine, "MainPID")
    assert third != second
    assert "--slow\0005s\0" in machine.run("cat", f"/proc/{third}/cmdline")
    assert ask(machine, "USE n.d; RETURN t:kept.x") == "7"

    machine.run("dpkg", "-r", "storenode")
    kept = tree(store)
    assert kept and settings.exists() and not (root / "usr/lib/storenode").exists()
    assert "/var/lib/storenode is kept" in machine.run("dpkg", "-P", "storenode")
    assert tree(store) == kept and backups.is_dir() and not settings.exists()

    # What was kept is taken up again.
    machine.run("dpkg", "-i", f"/root/{package.name}")
    assert ask(machine, "USE n.d; RETURN t:kept.x") == "7"
    # A store on another disk leaves an empty directory there.
    elsewhere = root / "srv" / "backups"
    machine.run("mv", "/var/backups/storenode", "/srv/backups")
    machine.run("ln", "-s", "/srv/backups", "/var/backups/storenode")
    machine.run("dpkg", "-P", "storenode", STORE_PURGE_DATA="yes")
    assert not store.exists() and not backups.is_symlink() and not list(elsewhere.iterdir())


@pytest.mark.skipif(shutil.which("lintian") is None, reason="not installed: lintian")
def test_lintian_finds_no_fault(package: Path) -> None:
    done("lintian", "--allow-root", "--fail-on", "error,warning", package)
