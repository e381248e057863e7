"""Backup files: what is in them, how they are written, read back, and made a data directory again.

A backup is a snapshot, a log or a script. The first two share one container, whose bytes are drawn
at the head of `container.py`; a script is text of the language, and other rooms write and run it.
Each may be sealed (`storage/sealing.py`), a script then within the container too.
How a file begins says which it is.

| file | what it holds |
|---|---|
| `forms.py` | the forms, and how a file of each begins |
| `facts.py` | what a file says of itself: whose it is, of when, of what place |
| `container.py` | the bytes of snapshot and log: header, chunks with checks, end |
| `snapshots.py` | every logged key of one view, or of one place |
| `logs.py` | frames of the log |
| `scripts.py` | a script: its first line, its last, and what that proves |
| `script_texts.py` | the text of a script in its file, in clear or sealed |
| `verifying.py` | a file read through: what it holds, and whether all of it is there |
| `making.py` | the state of a store, made of a snapshot that is proven |
| `restoring.py` | a data directory made of a snapshot, of a log, of a log on top of either |
| `copying.py` | a data directory made of another node's snapshot: the same store |
| `filling.py` | the state of a store, made of the pairs of a snapshot |
| `places.py` | which keys belong to one place, and what a snapshot of it has of the others |
| `awaiting.py` | what time has brought to a restored store, before anything is done about it |

Nothing here holds the loop by itself: what takes long is a generator that gives control back
between slices, or is told to call somebody.
"""
