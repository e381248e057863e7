"""Who owns what while the node runs.

Requests go down this list, events go up (`tell`); nobody asks upwards, so nobody waits in a circle,
and nobody waits by blocking:

    surfaces
    scripts      runs scripts in turns                          loop
    spaces       one for each cache space: keys, and sweeping   loop
    topics       one for each topic that has something due      loop
    sessions     who a caller is                                loop
    indexes      builds what was declared                       loop
    checkpoints  when to flush the state and prune the log      loop
    roles        the node's own facts                           thread
    passwords    hashing, one for each core                     threads
    flush        waits for the engine                           thread
    commits      the ledger: transactions, what is in flight    loop
    backups      files of backups: writes them, lists them      threads
    log reads    reads what the log holds                       thread
    log          writes and syncs                               thread

`Backups` (backups/), `Committer` (commits/), `LogReads`, `Roles`, `Passwords`, `Sessions`, `Spaces`
and `Topics` are what others on the loop use of those actors without a message: to begin and commit
a transaction must not wait.
Scripts that wait for messages stand in `waiting.py` meanwhile.

`runtime/` alone knows how an actor is run; `node.py` starts, supervises and stops them all;
`doors.py` holds the real doors.
"""
