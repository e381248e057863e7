"""The life of a request.

| file | contents |
|---|---|
| `blocking.py` | the one way to wait: queues of waits, and their deadlines |
| `executor.py` | the life of a request, written once |
| `fiber.py` | fiber: synchronous work in a greenlet, which yields to the loop |
| `late_answers.py` | ends of answers that wait for commits which are not released in time |
| `loop_budget.py` | time that many short calls share in one iteration of the loop |
| `registry.py` | live requests: INFO FOR RUNNING, KILL, end of a session, limits on waiting |
| `request.py` | one request: its states, its wait for a release, its row of INFO FOR RUNNING |
| `scheduler.py` | queue of fibers by rank and user; one slice per iteration of the loop |
| `transact.py` | the life of a transaction, written once |
| `units.py` | requests that share transactions, by group, and when to run them |
"""
