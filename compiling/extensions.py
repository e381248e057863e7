"""`python -m compiling.extensions`, with a copy of the tree as the current directory: compile its
modules beside their sources."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

from mypyc.build import mypycify
from setuptools import Distribution

from compiling.modules import LIBRARY, MODULES, source

WORK: Final = Path("build")
"""C sources and objects, inside the copy; gone afterwards."""


def main() -> None:
    """Compile. Ends the process with what mypyc or the compiler says where they refuse."""
    extensions = mypycify(
        [source(module) for module in MODULES],
        debug_level="0",
        group_name=LIBRARY.removesuffix("__mypyc"),
        target_dir=str(WORK),
    )
    # Not through `setup`: that would read of the project's settings what is meant for hatchling.
    command = Distribution({"ext_modules": extensions}).get_command_obj("build_ext")
    command.inplace = True
    command.parallel = len(os.sched_getaffinity(0))
    command.build_temp = command.build_lib = str(WORK / "objects")
    command.ensure_finalized()
    command.run()
    shutil.rmtree(WORK)


if __name__ == "__main__":
    main()
