"""Bytes on the disk: keys, frames, effects, entries, containers, sealing.

Pure functions between values and bytes. A change of one of them may change what is on the disk.

Each file of a data directory (`storage/files/directory.py`), and the module with its byte layout:

| file | content | layout |
|---|---|---|
| `log/*.storelog` | segments of the write-ahead log | `frames.py`, `effects.py`, `entries.py` |
| `log/BEGINS` `NEWEST` `CLOSED` | metadata files of the log | `storage/log/log.py` |
| `log/HISTORY` | metadata file: ends of leader epochs | `positions.py` |
| `log/RESERVE`… | zeros | `storage/files/disk_reserve.py` |
| `state/` | RocksDB: key tags | `keys.py`; the modules it names have the values |
| `state/` | RocksDB: applied position | `storage/txn/applied_position.py` |
| `state/IMAGE` | state of a sealed store | `container.py`, its stream too |
| `STORE` `RESTORING` | metadata files of the directory | `storage/files/directory.py` |
| `DAMAGED` | metadata file | `storage/files/rebuild_marker.py` |
| `NODE` | metadata file | `storage/files/node_file.py` |
| `PEER` | metadata file | `storage/files/peer_file.py` |
| `CLUSTER` | metadata file | `storage/files/cluster_file.py` |
| `JOINING` | metadata file | `storage/files/joining_file.py` |
| `FIRST-PASSWORD` | a line of text | `actors/first_password.py` |

A metadata file is JSON with a checksum, encrypted in a sealed store:
`storage/files/metadata_file.py`, `sealing.py`.

Backups are files elsewhere:

| file | container | stream |
|---|---|---|
| `*.storesnap` | `container.py` | `container.py`: keys and values of the state |
| `*.storelog` | `container.py` | `frames.py`: frames without segments |
| `*.storeql` | none; `container.py` if sealed | `storage/backups/scripts.py`: text |
"""

PUBLIC = (
    "container",
    "effects",
    "entries",
    "frames",
    "keys",
    "positions",
    "sealing",
)
