"""The wheels: installed by pip without a network and without a compiler, and run from there."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from functools import partial
from pathlib import Path

import pytest

from bench import ports, processes
from compiling.modules import compiled
from tests.architecture.sources import ROOT
from tests.docs import tour
from tests.packaging.programs import done, ended
from tests.processes import environment

BUILD = "compiled" if compiled(ROOT) else "plain"


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheels of this tree and of all that they need."""
    folder = tmp_path_factory.mktemp("wheels")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    done(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder))
    shutil.copytree(ROOT / "clients" / "python", folder / "client")  # in place it leaves a copy
    client = ["--no-deps", "--no-build-isolation", "--wheel-dir", str(folder)]
    client.append(str(folder / "client"))
    done(*pip, "wheel", *client)
    ours = map(str, folder.glob("*.whl"))
    only = ["--only-binary", ":all:", "--constraint", "constraints.txt"]
    done(*pip, "download", *only, "--dest", str(folder), *ours)
    return folder


@pytest.mark.hard
def test_the_tour_is_played_from_the_installed_wheels(wheels: Path, tmp_path: Path) -> None:
    done(sys.executable, "-m", "venv", str(tmp_path / "venv"))
    there = tmp_path / "venv" / "bin"
    install = ["install", "--quiet", "--no-index", "--find-links", str(wheels)]
    done(str(there / "pip"), *install, "storenode", "storeclient", PATH=str(there))
    assert done(str(there / "storenode"), "--version").endswith(f"({BUILD})\n")

    http, wire = (f"127.0.0.1:{ports.free_port()}" for _ in range(2))
    start = tour.starts()["pip"].replace("/tmp/tour", str(tmp_path / "tour"))
    start = start.replace(":8000", http).replace(":8001", wire)
    variables = environment(STORE_USER="root", STORE_PASSWORD=tour.PASSWORD)
    del variables["PYTHONPATH"]
    with subprocess.Popen(shlex.split(start), cwd=tmp_path, env=variables) as node:
        try:
            processes.wait_for(lambda: node.poll() is not None or is_ready(http), "no node")
            tour.play(partial(tour.run_here, python=str(there / "python")), http, wire)
            with urllib.request.urlopen(f"http://{http}/health") as answer:
                assert json.load(answer)["build"] == BUILD
        finally:
            node.terminate()
    assert node.returncode == 0

    # Both say what their types are.
    of = ["--strict", "--python-executable", str(there / "python")]
    cache = ["--cache-dir", str(tmp_path / "cache")]
    code = "import storenode, storeclient; reveal_type(storenode.main)"
    said = done(sys.executable, "-m", "mypy", *of, *cache, "--config-file=", "-c", code)
    assert 'Revealed type is "def () -> int"' in said


@pytest.mark.parametrize("kind", ["debian", "image"])
def test_a_wheel_of_another_python_is_refused_by_its_name(kind: str, tmp_path: Path) -> None:
    wheel = tmp_path / "storenode-1-cp399-cp399-linux_x86_64.whl"
    wheel.touch()
    build = str(ROOT / "packaging" / kind / "build")
    ran = ended(build, str(wheel), str(tmp_path), str(Path(sys.executable).with_name("pip")))
    assert ran.returncode == 1
    assert ran.stderr.startswith(f"{wheel.name} is not for the Python of this Debian, which is cp3")
    assert list(tmp_path.iterdir()) == [wheel]


def is_ready(address: str) -> bool:
    """Whether a node answers that it is ready."""
    try:
        with urllib.request.urlopen(f"http://{address}/ready") as answer:
            return bool(answer.status == 200)
    except urllib.error.URLError:
        return False
