"""Programs that the tests of artefacts run to their end."""

from __future__ import annotations

import os
import subprocess

from tests.architecture.sources import ROOT


def ended(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, at the top of the tree. :param more: of its environment"""
    return subprocess.run(
        words,
        cwd=ROOT,
        env={**os.environ, **more},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def done(*words: str, **more: str) -> str:
    """Run a program to its end, which is a good one. Return its output."""
    ran = ended(*words, **more)
    assert ran.returncode == 0, f"{ran.args}: {ran.stdout}{ran.stderr}"
    return ran.stdout
