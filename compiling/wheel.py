"""Build hook of hatchling: tags the wheel of a compiled tree for one interpreter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompiledWheel(BuildHookInterface[Any]):
    """Adds the extension modules of a compiled tree, and tags the wheel for this interpreter and
    platform.

    The wheel of a plain tree stays universal.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the extension modules, before the files are gathered."""
        for library in Path(self.root).glob("*.so"):
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
            build_data["force_include"][str(library)] = library.name  # below storenode/ as all else
