"""`python -m compiling`: make build/compiled, a copy of this tree whose hot modules are compiled.

The checkout itself stays plain: Python imports an extension module instead of the source beside it,
so a stale one would silently run after the source was changed. Existing extension modules are
reused if none of their inputs has changed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from fnmatch import fnmatch
from importlib.metadata import version
from pathlib import Path
from typing import Final

from compiling.modules import LIBRARY, ROOMS, ROOT, SUFFIX, compiled

TREE: Final = ROOT / "build" / "compiled"
MADE_OF: Final = ".compiled"
"""File in the tree with a hash of the inputs of its extension modules."""
NO_COMPILER: Final = """\
{lacks}: modules cannot be compiled here.
On Debian: apt-get install gcc libc6-dev python3-dev. The plain sources need no compiler."""


def main() -> int:
    """Make the tree. Return the exit code."""
    if lacks := lacking():
        print(NO_COMPILER.format(lacks=lacks), file=sys.stderr)
        return 1
    TREE.parent.mkdir(exist_ok=True)
    with TREE.with_name("compiled.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # two at once took each other's files away
        return _make()


def _make() -> int:
    made_of, fresh = digest(), TREE.with_name("compiled.new")
    shutil.rmtree(fresh, ignore_errors=True)
    shutil.copytree(ROOT, fresh, ignore=left_out)
    if made_of == _noted(TREE):
        for path in TREE.rglob(f"*{SUFFIX}"):
            shutil.copy2(path, fresh / path.relative_to(TREE))
    else:
        done = subprocess.run(
            [sys.executable, "-m", "compiling.extensions"], cwd=fresh, check=False
        )
        if done.returncode:
            return done.returncode
    (fresh / MADE_OF).write_text(made_of)
    shutil.rmtree(TREE, ignore_errors=True)
    fresh.rename(TREE)
    print(f"{len(compiled(TREE))} modules are compiled in {TREE.relative_to(ROOT)}")
    return 0


def lacking() -> str | None:
    """Return the missing prerequisites of compiling; None: all are installed."""
    command = os.environ.get("CC") or str(sysconfig.get_config_var("CC") or "cc")
    program = shlex.split(command)[0]
    if shutil.which(program) is None:
        return f"there is no C compiler {program!r}"
    if not (Path(sysconfig.get_path("include")) / "Python.h").is_file():
        return "the headers of this Python are not installed"
    return None


def digest() -> str:
    """Hash all inputs of the extension modules: the rooms of the node, versions of the tools,
    CFLAGS.

    Modules that stay plain count too: their types and constants are compiled into the others.
    """
    made_of = hashlib.sha256()
    paths = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]
    paths += [ROOT / path for path in ("compiling/extensions.py", "compiling/modules.py")]
    for path in [*paths, ROOT / "pyproject.toml"]:
        made_of.update(f"{path.relative_to(ROOT)} {path.stat().st_size}\n".encode())
        made_of.update(path.read_bytes())
    made_of.update(f"{sys.version} {version('mypy')} {os.environ.get('CFLAGS')}".encode())
    return made_of.hexdigest()


def _noted(tree: Path) -> str | None:
    """Return the hash of the inputs of a tree's extension modules, if the tree has all of them."""
    noted, library = tree / MADE_OF, tree / f"{LIBRARY}{SUFFIX}"
    return noted.read_text() if noted.is_file() and library.is_file() else None


def left_out(folder: str, names: list[str]) -> set[str]:
    """Return the names in a folder of the tree that a copy leaves out: git's, and those of folders
    that git ignores.

    Ignored files are copied, the console's pages among them. `build/` is a folder: the programs
    packaging/*/build are files, and are copied too.
    """
    lines = (ROOT / ".gitignore").read_text().splitlines()
    ignored = [line.strip().rstrip("/") for line in lines if line.strip().endswith("/")]
    found = {".git"} & set(names)
    for name in names:
        path = Path(folder, name)
        here = f"/{path.relative_to(ROOT)}"  # a pattern with a slash begins at the top
        if path.is_dir() and any(fnmatch(here if "/" in one else name, one) for one in ignored):
            found.add(name)
    return found


if __name__ == "__main__":
    sys.exit(main())
