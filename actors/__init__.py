"""Actors: each owns a part of the node's state while the node runs.

Requests go down this list, events go up (`tell`). No actor asks upwards, so no cycle of waits can
form, and no actor blocks while it waits:

    surfaces
    scripts      runs scripts, cooperatively scheduled          loop
    spaces       one for each cache space: keys, and sweeping   loop
    topics       one for each topic that has something due      loop
    sessions     authenticates callers                          loop
    indexes      builds declared indexes                        loop
    checkpoints  when to flush the state and prune the log      loop
    roles        the node's own facts                           thread
    passwords    hashing, one for each core                     threads
    flush        waits for the engine                           thread
    commits      the ledger: transactions, pending writes       loop
    backups      files of backups: writes them, lists them      threads
    log reads    reads what the log holds                       thread
    log          writes and syncs                               thread

Code on the loop uses some actors without a message: through `Backups` (backups/), `Committer`
(commits/), `LogReads`, `Roles`, `Passwords`, `Sessions`, `SpaceService` and `TopicService`. To
begin and commit a transaction must not wait. Scripts that wait for messages are kept in
`topics/waiting.py`.

Only `runtime/` knows how an actor is run. `node.py` starts, supervises and stops all of them.
`environment.py` holds the production environment.
"""
