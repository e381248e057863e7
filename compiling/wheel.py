"""Build hook of hatchling: writes the console's pages, and tags the wheel of a compiled tree."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class NodeWheel(BuildHookInterface[Any]):
    """Writes `console/docs/`, for an editable install too: a node of a checkout serves it.

    Adds the extension modules of a compiled tree, and tags the wheel for this interpreter and
    platform. The wheel of a plain tree stays universal.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the pages and add the extension modules, before the files are gathered."""
        # By its path: the tree is not on the import path of a build by pip.
        runpy.run_path(str(Path(self.root, "docs/html.py")), run_name="__main__")
        for library in Path(self.root).glob("*.so"):
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
            build_data["force_include"][str(library)] = library.name  # below storenode/ as all else
