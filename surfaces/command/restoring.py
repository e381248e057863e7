"""`--restore <file>`: make a store from a backup, or apply a log backup to a restored one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from actors.backups.restoring import RestoreOptions, check_for_script
from actors.backups.restoring import restore as make
from actors.backups.script_files import is_script
from actors.environment import system_environment
from actors.node import START_FAULTS
from surfaces.command import scripts
from surfaces.command.arguments import Restore, RunFile
from surfaces.command.console import Console
from surfaces.command.failures import NotOpened, reason
from surfaces.command.key_reading import keys_in
from surfaces.command.opening import opened_backup
from surfaces.command.progress import stages


async def restore(command: Restore, console: Console) -> bool:
    """Restore the backup, and print the result and the node's next steps. The kind of the backup is
    detected from its first bytes.

    :raises NotOpened: the file can't be read or is incomplete, or the directory is unsuitable:
        nothing was changed. Or a write failed: the directory is not a store then.
    """
    environment = system_environment()
    directory, opening = command.directory, command.opening
    keys = keys_in(environment.fs, opening.keys)
    jump = opening.accept_clock_jump
    wanted = RestoreOptions(directory, command.upto, command.reading, jump, keys.own)
    with _refused(command), closing(opened_backup(environment.fs, command.file)) as file:
        script = is_script(file)
        if script:
            check_for_script(environment, wanted)
        else:
            with stages(console) as tick:
                lines = make(environment, file, wanted, tick, keys.opening)
            for line in lines:
                console.answer(line)
    if script:
        with _refused(command):
            filling = RunFile(directory, command.file, opening)
            return await scripts.restore(filling, keys, console, anew=True)
    return True


@contextmanager
def _refused(command: Restore) -> Iterator[None]:
    try:
        yield
    except START_FAULTS as fault:
        raise NotOpened(reason(command.file, fault)) from fault
    except KeyboardInterrupt:
        raise NotOpened(
            f"interrupted: {command.directory} is not a store yet; run the same command"
            " again to finish"
        ) from None
