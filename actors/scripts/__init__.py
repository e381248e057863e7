"""Script execution: many scripts at once on one event loop, each a fiber (greenlet).

| file | contents |
|---|---|
| `actor.py` | answers requests |
| `transactions.py` | one run of a script, divided into transactions |
| `execution.py` | context of a script's statements |
| `fiber.py`, `scheduler.py` | fibers and their scheduler |
| `conflict_retry.py` | conflict retries, priority locks |
| `plans.py` | cache of compiled texts |
| `answers.py` | answers of ended scripts |
| others | the statements, by subject |
"""
