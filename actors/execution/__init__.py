"""The life of a request.

| file | contents |
|---|---|
| `blocking.py` | the one way to wait: queues of waits, and their deadlines |
| `fiber.py` | fiber: synchronous work in a greenlet, which yields to the loop |
| `loop_budget.py` | time that many short calls share in one iteration of the loop |
| `registry.py` | live requests: INFO FOR RUNNING, KILL, end of a session, limits on waiting |
| `scheduler.py` | queue of fibers by rank and user; one slice per iteration of the loop |
"""
