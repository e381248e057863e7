"""`python -m tests.docs.machine COMMAND …`: what a machine of a page has besides its files, in the
words that its people use. See `machines.py`.

`systemctl` starts what a unit file says, as a process of its own, and waits for its READY=1 where
the unit says so; `ssh` and `scp` go from one folder to another.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from unittest.mock import patch

ROOT = Path(os.environ.get("MACHINES", "."))
MACHINE = os.environ.get("MACHINE", "")
SECONDS = 600
CONNECT_SECONDS = (
    30.0  # no more: a command of which the page shows that no node leads takes as long
)
READY = b"READY=1"


def systemctl(*words: str) -> int:
    """`start`, `enable`, `restart`, `stop` and `is-active`; all else does nothing."""
    act, *units = [word for word in words if not word.startswith("-")]
    code = 0
    for name in units:
        unit = Unit(name.removesuffix(".service"))
        if act in ("start", "restart", "enable"):
            if act == "restart":
                unit.end(signal.SIGTERM)
            code |= unit.start()
        elif act == "stop":
            unit.end(signal.SIGTERM)
        elif act == "is-active":
            print("active" if unit.pid else "inactive")
    return code


class Unit:
    """A service of this machine."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._home = ROOT / MACHINE
        self._runs = self._home / "run"
        self._runs.mkdir(exist_ok=True)

    @property
    def pid(self) -> int | None:
        try:
            pid = int((self._runs / f"{self.name}.pid").read_text())
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (OSError, ValueError):
            return None
        return None if state == "Z" else pid

    def start(self) -> int:
        if self.pid is not None:
            return 0
        told = self._settings()
        variables = _without_ours(os.environ)
        for path in told.get("EnvironmentFile", []):
            variables |= self._variables(path)
        (line,) = told["ExecStart"]
        # As systemd does: ${NAME} of the unit's own environment.
        words = [
            re.sub(r"\$\{(\w+)\}", lambda found: variables.get(found[1], ""), word)
            for word in line.split()
        ]
        notified = self._runs / f"{self.name}.notify"
        notified.unlink(missing_ok=True)
        listens = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        listens.bind(str(notified))
        listens.settimeout(0.05)
        waits = told.get("Type") == ["notify"]
        with (self._home / f"{self.name}.journal").open("ab") as said, listens:
            process = subprocess.Popen(
                words,
                env={**variables, **({"NOTIFY_SOCKET": str(notified)} if waits else {})},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
            (self._runs / f"{self.name}.pid").write_text(str(process.pid))
            ends = time.monotonic() + SECONDS
            while waits:
                if time.monotonic() > ends:
                    print(f"Job for {self.name}.service timed out.")
                    return 1
                if process.poll() is not None:
                    print(f"Job for {self.name}.service failed.")
                    return 1
                try:
                    if READY in listens.recv(1_000):
                        return 0
                except TimeoutError:
                    continue
        return 0

    def end(self, number: int) -> None:
        """Send it a signal, and wait for its end."""
        while (pid := self.pid) is not None:
            os.kill(pid, number)
            ends = time.monotonic() + SECONDS
            while self.pid == pid and time.monotonic() < ends:
                time.sleep(0.02)

    def _settings(self) -> dict[str, list[str]]:
        path = self._home / "etc" / "systemd" / "system" / f"{self.name}.service"
        told: dict[str, list[str]] = {}
        for line in _here(path.read_text()).replace("\\\n", " ").splitlines():
            name, is_one, value = line.partition("=")
            if is_one:
                told.setdefault(name, []).append(value)
        return told

    def _variables(self, path: str) -> dict[str, str]:
        found = Path(path.removeprefix("-"))
        if path.startswith("-") and not found.exists():
            return {}
        lines = [line.partition("=") for line in _here(found.read_text()).splitlines()]
        return {name: value for name, is_one, value in lines if is_one}


def _here(text: str) -> str:
    text = text.replace("/opt/storenode/.venv/bin/storenode", "storenode")
    text = re.sub(r"(?<=[=\s-])/usr/bin/", "", text)
    return re.sub(r"(?<![\w.}:/])/(?=(?:etc|var|backups)/)", f"{ROOT / MACHINE}/", text)


def ssh(machine: str, *words: str) -> int:
    """Run a command on another machine, with what is put in here."""
    home = ROOT / machine / "home"
    for folder in ("home", "etc", "var/lib", "opt/storenode"):
        (ROOT / machine / folder).mkdir(parents=True, exist_ok=True)
    command = " ".join(words).replace(f"{ROOT / MACHINE}/", f"{ROOT / machine}/")
    return subprocess.run(
        ["bash", "-c", command],
        cwd=home,
        env={**_without_ours(os.environ), "MACHINE": machine},
        check=False,
    ).returncode


def _without_ours(variables: Mapping[str, str]) -> dict[str, str]:
    """What a machine does not have of who works at another."""
    return {name: value for name, value in variables.items() if not name.startswith("STORE_")}


def scp(*words: str) -> int:
    """Copy files to another machine or from one."""
    *sources, target = [_place(word) for word in words if not word.startswith("-")]
    if len(sources) > 1 or target.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    for source in sources:
        shutil.copy(source, target)
    return 0


def _place(word: str) -> Path:
    machine, is_there, path = word.partition(":")
    return ROOT / machine / path.lstrip("/") if is_there else Path(word)


def poweroff() -> int:
    """All that runs on this machine is gone at once."""
    for path in (ROOT / MACHINE / "run").glob("*.pid"):
        Unit(path.stem).end(signal.SIGKILL)
    return 0


def storenode(*words: str) -> int:
    """The command. It waits longer for a connection: all machines of the page share this one."""
    # Here: the other commands are called often, and start sooner without the node.
    from surfaces.command.main import main
    from surfaces.shell import connecting

    with patch.object(connecting, "CONNECT_SECONDS", CONNECT_SECONDS):
        return main(words)


def sudo(*words: str) -> int:
    """As somebody else: here everybody may do everything."""
    return subprocess.run(words, check=False).returncode


def pip(*words: str) -> int:
    """Refuse files as pip does. What runs here is this tree, whatever is installed."""
    _, *files = [word for word in words if not word.startswith("-")]
    missing = [file for file in files if not Path(file).is_file()]
    if missing:
        print(f"ERROR: Could not install packages due to an OSError: no such file: {missing}")
        return 1
    installed = [Path(file).name.split("-")[:2] for file in files]
    if len({name for name, _ in installed}) != len(files):
        print(f"ERROR: Cannot install {' and '.join(' '.join(one) for one in installed)}")
        return 1
    print("Successfully installed", *map("-".join, installed))
    return 0


def chown(*_words: str) -> int:
    """There are no other users here."""
    return 0


COMMANDS: dict[str, Callable[..., int]] = {
    function.__name__: function
    for function in (systemctl, ssh, scp, poweroff, storenode, pip, sudo, chown)
}

if __name__ == "__main__":
    sys.exit(COMMANDS[sys.argv[1]](*sys.argv[2:]))
