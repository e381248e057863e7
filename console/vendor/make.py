"""Makes the vendored libraries of the console: `python console/vendor/make.py`.

Each package comes from npm in the version that stands in `PARTS`, and esbuild makes one ES module
of those that belong together. `VENDOR.json` says what is in each file, with its checksum; the texts
of the licences lie beside it. Nothing of npm is needed to run a node.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
ESBUILD: Final = "esbuild@0.28.2"


@dataclass(frozen=True, slots=True)
class Part:
    """A file that is made.

    :ivar packages: name and version of what it is made of; what these need comes along
    :ivar entry: the module that esbuild starts from; empty: `copied` is taken as it is
    :ivar copied: a path in the first package
    :ivar folder: where the file is kept, from the root of the repository
    """

    packages: dict[str, str]
    entry: str = ""
    copied: str = ""
    folder: str = "console/vendor"


CODEMIRROR: Final = {
    "@codemirror/autocomplete": "6.20.4",
    "@codemirror/commands": "6.11.1",
    "@codemirror/language": "6.13.1",
    "@codemirror/lint": "6.9.8",
    "@codemirror/search": "6.7.2",
    "@codemirror/state": "6.7.6",
    "@codemirror/view": "6.43.15",
    "@lezer/highlight": "1.2.5",
}

PARTS: Final = {
    "preact.js": Part(
        {"preact": "10.29.8", "htm": "3.1.1"},
        "import { h } from 'preact'; import htm from 'htm'; export * from 'preact';"
        " export * from 'preact/hooks'; export const html = htm.bind(h);",
    ),
    "codemirror.js": Part(
        CODEMIRROR, " ".join(f"export * from '{name}';" for name in sorted(CODEMIRROR))
    ),
    "uplot.js": Part({"uplot": "1.6.32"}, "export { default } from 'uplot';"),
    "uplot.css": Part({"uplot": "1.6.32"}, copied="dist/uPlot.min.css"),
    "axe.js": Part({"axe-core": "4.14.1"}, copied="axe.min.js", folder="tests/console/vendor"),
}


def main() -> None:
    """Make every file anew, and say in VENDOR.json what is in it."""
    told: dict[str, dict[str, Any]] = {}
    for name, part in PARTS.items():
        with tempfile.TemporaryDirectory() as scratch:
            told.setdefault(part.folder, {})[name] = _make(name, part, Path(scratch))
    for folder, files in told.items():
        text = json.dumps(files, indent=2, sort_keys=True) + "\n"
        (ROOT / folder / "VENDOR.json").write_text(text)


def _make(name: str, part: Part, scratch: Path) -> dict[str, Any]:
    wanted = [f"{package}@{version}" for package, version in part.packages.items()]
    # esbuild's own script only looks whether its program is there: npm has brought it.
    npm = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--save-exact"]
    subprocess.run([*npm, *wanted, ESBUILD], cwd=scratch, check=True)
    modules, folder = scratch / "node_modules", ROOT / part.folder
    made = folder / name
    made.parent.mkdir(parents=True, exist_ok=True)
    if part.entry:
        (scratch / "entry.js").write_text(part.entry)
        words = ["--bundle", "--format=esm", "--minify", "--legal-comments=none", "--target=es2022"]
        built = ["node_modules/.bin/esbuild", "entry.js", *words, f"--outfile={made}"]
        subprocess.run(built, cwd=scratch, check=True)
    else:
        made.write_bytes((modules / next(iter(part.packages)) / part.copied).read_bytes())
    lock = json.loads((scratch / "package-lock.json").read_text())["packages"]
    return {
        "sha256": hashlib.sha256(made.read_bytes()).hexdigest(),
        "packages": [
            _told(lock[path], path.removeprefix("node_modules/"), modules, folder)
            for path in sorted(lock)
            if path and "esbuild" not in path
        ],
    }


def _told(locked: dict[str, Any], package: str, modules: Path, folder: Path) -> dict[str, str]:
    """What is told of a package; the text of its licence is kept."""
    (text,) = [
        path for path in (modules / package).iterdir() if path.name.lower().startswith("licen")
    ][:1]
    kept = folder / "licences" / (package.replace("/", "-").lstrip("@") + ".txt")
    kept.parent.mkdir(exist_ok=True)
    shutil.copyfile(text, kept)
    return {
        "name": package,
        "version": locked["version"],
        "license": locked["license"],
        "integrity": locked["integrity"],
        "text": kept.relative_to(folder).as_posix(),
    }


if __name__ == "__main__":
    main()
