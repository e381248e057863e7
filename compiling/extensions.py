"""`python -m compiling.extensions`: compile the modules of a copy of the tree beside their sources.

The copy is the current directory.
"""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from mypyc.build import mypycify
from setuptools import Distribution

from compiling.modules import LIBRARY, MODULES, source

WORK: Final = Path("build")
"""Folder for C sources and objects, inside the copy; removed afterwards."""


def main() -> None:
    """Compile. If mypyc or the compiler fails, end the process with its message."""
    extensions = mypycify(
        [source(module) for module in MODULES],
        debug_level="0",
        group_name=LIBRARY.removesuffix("__mypyc"),
        target_dir=str(WORK),
        multi_file=True,  # one C source for each module: they are compiled beside each other
    )
    # Not through `setup`: that would read the project's settings for hatchling.
    command = Distribution({"ext_modules": extensions}).get_command_obj("build_ext")
    command.inplace = True
    command.parallel = len(os.sched_getaffinity(0))
    command.build_temp = command.build_lib = str(WORK / "objects")
    command.ensure_finalized()
    build = command.build_extensions

    def build_together() -> None:
        _sources_together(command.compiler)
        command.compiler.linker_so = without_paths(command.compiler.linker_so)
        build()

    command.build_extensions = build_together
    command.run()
    shutil.rmtree(WORK)


def without_paths(linker: list[str]) -> list[str]:
    """Return a linker's words without search paths of libraries at run time.

    A Python that was built in a folder of its own adds that folder. The modules need none of its
    libraries, and are shipped to machines where the folder is absent or belongs to somebody else.
    """
    return [word for word in linker if not word.startswith("-Wl,-rpath")]


def _sources_together(compiler: Any) -> None:
    """Let a compiler work on as many sources of one library at a time as there are processors.

    By itself setuptools parallelizes libraries only, and one of them has nearly every source.
    """
    compile_all = compiler.compile

    def compile_together(sources: list[str], *given: Any, **named: Any) -> list[str]:
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            made = pool.map(lambda one: compile_all([one], *given, **named), sources)
            return [path for paths in made for path in paths]

    compiler.compile = compile_together


if __name__ == "__main__":
    main()
