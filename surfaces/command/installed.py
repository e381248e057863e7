"""Package `storenode` of an installed node: in a wheel this file is `storenode/__init__.py`.

The node's packages have plain names (`protocol`, `storage`, `actors`) that other projects may use
too. So a wheel carries them, the client and the pages in the folder `storenode`, laid out as in a
checkout, where no other program sees them. A process that runs the node puts that folder first on
its path. Reasons: docs/decisions/one-name.md.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

_HERE: Final = Path(__file__).resolve().parent


def main() -> int:
    """Run the command line: a node, or `shell`, `import` and `export`. Return the exit code."""
    # Only a wheel has the packages here; an editable install has the checkout on its path.
    if (_HERE / "protocol").is_dir():
        # First on the path: a foreign package called `protocol` must not be imported instead.
        sys.path[:0] = [str(_HERE), str(_HERE / "clients" / "python")]
    from surfaces.command.main import main as run

    return run()
