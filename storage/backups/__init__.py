"""Backup files: their formats, writing, verification, and restore into a data directory.

A backup is a snapshot, a log or a script. Snapshot and log share one container format, which is
drawn at the head of `storage/container.py`. A script is text of the language;
`actors/backups/scripts.py` writes scripts and `actors/scripts/restoring.py` runs them. Each form
may be sealed (`storage/sealing.py`); a sealed script is in the container as well. The first bytes
of a file identify its form (`storage/backup_forms.py`).

| file | contents |
|---|---|
| `snapshots.py` | every logged key of one view, or of one place |
| `logs.py` | frames of the log |
| `scripts.py` | a script: its first and last line, which prove that it is complete |
| `script_texts.py` | the text of a script in its file, in clear or sealed |
| `verifying.py` | verification: contents and completeness of a file |
| `making.py` | the state of a store, built from a verified snapshot |
| `restoring.py` | restore of a snapshot, of a log, of a log on top of either |
| `copying.py` | copy of another node's snapshot, as the same store |
| `filling.py` | bulk load of a snapshot's pairs into an empty state |
| `places.py` | keys of one place, and the reduced form of all others in its snapshot |
| `awaiting.py` | expired items of a restored store, reported without changing it |

Nothing here blocks the event loop by itself: long work is a generator that yields between slices,
or takes a progress callback.
"""
