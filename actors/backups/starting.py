"""Construction of the backup components."""

from __future__ import annotations

from typing import Any

from actors.backups.files import BackupFilesActor
from actors.backups.folder import BackupFolder
from actors.backups.listing import BackupListActor
from actors.backups.taking import Backups, StoreFacts
from actors.commits.committer import Committer
from actors.environment import Environment
from actors.log_reads import LogReads
from actors.runtime import Runtime, Supervised
from actors.settings import NodeSettings
from actors.store import Store


def start_backups(
    runtime: Runtime,
    committer: Committer,
    reads: LogReads,
    store: Store,
    settings: NodeSettings,
    environment: Environment,
) -> tuple[Backups, tuple[Supervised[Any], Supervised[Any]]]:
    """Return the backup service, and the actors that write and read backup files."""
    directory, _, engine = store.parts
    folder = BackupFolder(environment.fs, settings.backup_dir)
    tmp, key, keys = directory.tmp_path, settings.key, settings.opening_keys
    files: Supervised[Any] = Supervised(
        lambda: BackupFilesActor.start(runtime, environment.fs, environment.rng, folder, tmp, key),
        refoldable=True,
    )
    lists: Supervised[Any] = Supervised(
        lambda: BackupListActor.start(runtime, folder, keys), refoldable=True
    )
    about = StoreFacts(store.id, directory.created)
    backups = Backups(committer, reads, engine, about, folder, files, lists, environment.clock)
    return backups, (files, lists)
