"""The history that all backups here are of."""

from __future__ import annotations

import pytest

from protocol import limits
from storage.txn import steps
from tests.storage.backups.stores import CommitHistory


@pytest.fixture(scope="session")
def history() -> CommitHistory:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "INDEX_AT_ONCE", 1)
        patch.setattr(steps, "TOGETHER_BYTES", 1)
        return CommitHistory()
