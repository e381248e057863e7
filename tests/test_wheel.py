"""The wheel: one name at the top, below it all of the node and its pages, and nobody's package in
its way."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from email import message_from_string
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from surfaces.http import console
from tests.architecture.sources import ROOMS, ROOT
from tests.docs.test_html import PAGES
from tests.docs.test_pages import dead_links
from tests.processes import NodeProcess, environment

FOLDERS = (*ROOMS, "console")
CLIENT = "clients/python/storeclient"
COMMAND = "import sys; from storenode import main; sys.exit(main())\n"
ANOTHERS = "raise ImportError('another program has a package of this name')\n"
MODULE = "what_the_script_does"
"""As `bin/storenode` of an installed wheel, under a name that can be run by `-m`."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which a wheel has been unpacked, as an installer does.

    It is built of the sources without git, in which no page of the console is written.
    """
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-d", str(folder), "-t"]
    subprocess.run([*build, "sdist"], cwd=ROOT, check=True, capture_output=True)
    (packed,) = folder.glob("*.tar.gz")
    subprocess.run(["tar", "-xf", packed], cwd=folder, check=True)
    tree = folder / packed.name.removesuffix(".tar.gz")
    subprocess.run([*build, "wheel"], cwd=tree, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    site = folder / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site


def sources(folder: Path) -> dict[str, bytes]:
    """The Python files below a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*.py")
        if "__pycache__" not in path.parts
    }


def test_one_name_is_taken(site: Path) -> None:
    names = sorted(path.name.partition("-")[0] for path in site.iterdir())
    assert names == ["storenode", "storenode"]
    (about,) = site.glob("storenode-*.dist-info")
    assert "storenode = storenode:main" in (about / "entry_points.txt").read_text()


def test_its_metadata_says_what_there_is(site: Path) -> None:
    (about,) = site.glob("storenode-*.dist-info")
    metadata = message_from_string((about / "METADATA").read_text())
    assert metadata["License-Expression"] == "LicenseRef-none-stated"
    assert not list(ROOT.glob("LICEN[CS]E*")), "name this licence in both pyproject.toml"
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])
    for package in ("storenode", "storenode/clients/python/storeclient"):
        assert (site / package / "py.typed").is_file()


@pytest.mark.parametrize("folder", [*FOLDERS, CLIENT])
def test_all_of_the_node_is_in_it(site: Path, folder: str) -> None:
    wanted = sources(ROOT / folder)
    top = wanted.pop("command/installed.py", None)
    assert top is None or top == (site / "storenode" / "__init__.py").read_bytes()
    assert sources(site / "storenode" / folder) == wanted


def test_its_pages_are_in_it_and_their_links_lead_somewhere(site: Path) -> None:
    inside = site / "storenode"
    pages = sorted(inside.rglob("*.md"))
    assert {path.name for path in pages} >= {path.name for path in (ROOT / "docs").rglob("*.md")}
    assert [link for page in pages for link in dead_links(page)] == []


def test_all_of_the_console_is_in_it_and_nothing_of_npm(site: Path) -> None:
    there = {
        path.relative_to(site / "storenode" / "console").as_posix()
        for path in (site / "storenode" / "console").rglob("*")
        if path.is_file()
    }
    others = {name for name in console.FILES if not name.endswith(".html")} | {"index.html"}
    assert others | {f"docs/{name}" for name in PAGES} <= there
    assert [path for path in there if "node_modules" in path or "package" in path] == []


def test_a_node_runs_from_it_beside_packages_of_the_same_names(site: Path, tmp_path: Path) -> None:
    beside = tmp_path / "beside"
    beside.mkdir()
    (beside / f"{MODULE}.py").write_text(COMMAND)
    for name in (*FOLDERS, "storeclient"):
        (beside / f"{name}.py").write_text(ANOTHERS)
    found = {
        "PYTHONPATH": f"{beside}:{site}",
        "PYTHONSAFEPATH": "1",  # the checkout, in which it runs, is not to help
    }
    node = NodeProcess(tmp_path / "store", more=found, module=MODULE).start()
    try:
        assert node.script("RETURN 1 + 1")["results"][0]["value"] == 2
        address = "{}:{}".format(*node.address("wire"))
        shell = subprocess.run(
            [sys.executable, "-m", MODULE, "shell", address, "-c", "RETURN 'here'"],
            env=environment(**found),
            capture_output=True,
            text=True,
            check=False,
        )
        assert (shell.returncode, shell.stdout) == (0, "here\n"), shell.stderr
        assert node.stop() == 0
    finally:
        node.end()
    planted = subprocess.run(
        [sys.executable, "-c", "import surfaces.command.main"],
        env=environment(**found),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "another program has" in planted.stderr, "nothing stood in its way"


def test_no_dependency_has_a_package_of_a_room_s_name() -> None:
    """Inside of a node the rooms come first, so a dependency would get ours in place of its own."""
    others = {
        name: owners
        for name, owners in packages_distributions().items()
        if name in FOLDERS and set(owners) != {"storenode"}
    }
    assert others == {}
