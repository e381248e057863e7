"""What is shipped for systemd: units, and a backup that is restored on trial."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from surfaces.command.arguments import Serve, understand
from tests.architecture.sources import ROOT
from tests.processes import COMMAND, PASSWORD, USER, environment, serving

UNITS = ROOT / "packaging" / "systemd"


def program(folder: Path, script: str) -> None:
    """A program of the name `storenode`, which a shell runs."""
    path = folder / "storenode"
    path.write_text(
        f'#!/bin/sh\nset -eu\nrun() {{ {sys.executable} -m {COMMAND} "$@"; }}\n{script}\n'
    )
    path.chmod(0o755)


def back_up(folder: Path, programs: Path, address: str) -> subprocess.CompletedProcess[str]:
    """One backup, of which the newest two stay."""
    more = {"STORE_AT": address, "KEEP": "2", "STORE_USER": USER, "STORE_PASSWORD": PASSWORD}
    found = environment(**more)
    found["PATH"] = f"{programs}:{found['PATH']}"
    words = [str(UNITS / "storenode-backup"), str(folder)]
    return subprocess.run(words, env=found, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.hard
def test_a_backup_is_restored_on_trial_and_old_ones_go(tmp_path: Path) -> None:
    programs, folder = tmp_path / "bin", tmp_path / "some backups"
    programs.mkdir()
    folder.mkdir()
    old = [folder / f"2001-01-0{day}T02-00-00Z.storesnap" for day in (1, 2)]
    others = folder / "before-the-move.storesnap"
    for path in (*old, others):
        path.touch()
    with serving(tmp_path / "store") as node:
        address = "{}:{}".format(*node.address("wire"))
        program(programs, 'run "$@"')
        done = back_up(folder, programs, address)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "result=whole" in done.stdout and "restored store" in done.stdout
        (taken,) = set(folder.iterdir()) - {old[1], others}
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ\.storesnap", taken.name)

        # What is broken on its way to the disk is found, and then nothing is removed.
        taken.rename(folder / "2001-01-03T02-00-00Z.storesnap")
        damage = 'case $* in *--backup*) truncate -s -1 "$4" ;; esac'
        program(programs, f'run "$@"; {damage}')
        done = back_up(folder, programs, address)
        assert done.returncode == 1 and "result=cut" in done.stdout, done.stdout + done.stderr
        assert len(list(folder.iterdir())) == 4 and not list(folder.glob("trial*"))


@pytest.mark.hard
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="not installed: systemd")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    """With programs that are there, in the place of those that are installed."""
    units = []
    for path in sorted(UNITS.glob("storenode*.*")):
        units.append(tmp_path / path.name)
        units[-1].write_text(
            re.sub(r"^(ExecStart=)\S+", r"\1/bin/true", path.read_text(), flags=re.M)
        )
    assert len(units) == 3
    verify = ["systemd-analyze", "verify", "--man=no", *map(str, units)]
    ended = subprocess.run(verify, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, ""), ended
    judge = ["systemd-analyze", "security", "--offline=true", "--threshold=15"]
    judge += [str(path) for path in units if path.suffix == ".service"]
    ended = subprocess.run(judge, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout


def test_the_command_line_of_the_unit_is_understood() -> None:
    unit = (UNITS / "storenode.service").read_text()
    (line,) = re.findall(r"^ExecStart=(.+)$", unit, re.MULTILINE)
    (options,) = re.findall(r'^Environment="STORE_OPTIONS=(.+)"$', unit, re.MULTILINE)
    assert f'#STORE_OPTIONS="{options}"' in (UNITS.parent / "debian/storenode.default").read_text()
    command = understand(shlex.split(line.replace("$STORE_OPTIONS", options))[1:], {})
    assert isinstance(command, Serve)
    assert f"ReadWritePaths={command.backup_dir}" in unit
    assert command.directory == "/var/lib/storenode"
