"""Maps the clause of a DEFINE for an existing name to the store's enumeration."""

from __future__ import annotations

from typing import Final

from language import tree
from storage.catalog.catalog import Taken

IF_TAKEN: Final = {
    tree.Exists.REFUSE: Taken.REFUSE,
    tree.Exists.SKIP: Taken.SKIP,
    tree.Exists.OVERWRITE: Taken.OVERWRITE,
}
