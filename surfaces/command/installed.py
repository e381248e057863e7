"""The one name that an installed node takes: in a wheel this file is `storenode/__init__.py`.

The node's rooms have plain names, `protocol`, `storage`, `actors`, which others may give to their
packages too. So a wheel carries them, the client and the pages in the folder `storenode`, laid out
as in a checkout, where no other program sees them. A process that runs the node puts that folder
ahead of all others on its path. Why so: docs/decisions/one-name.md.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

_HERE: Final = Path(__file__).resolve().parent


def main() -> int:
    """Run the command line: a node, or `shell`, `import` and `export`. Answers the exit code."""
    # Only a wheel has its rooms here; an editable install has the checkout on its path.
    if (_HERE / "protocol").is_dir():
        # First of all: what somebody else calls `protocol` must not be taken for ours.
        sys.path[:0] = [str(_HERE), str(_HERE / "clients" / "python")]
    from surfaces.command.main import main as run

    return run()
