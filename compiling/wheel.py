"""What hatchling asks while it builds a wheel: a wheel of a compiled tree is of one interpreter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompiledWheel(BuildHookInterface[Any]):
    """Adds what a compiled tree has beside its rooms, and says whom the wheel is for. The wheel of
    a plain tree stays for everybody."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Before the files are gathered."""
        for library in Path(self.root).glob("*.so"):
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
            build_data["force_include"][str(library)] = library.name  # below storenode/ as all else
