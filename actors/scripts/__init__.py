"""Script execution: many scripts at once on one event loop, each a fiber (greenlet).

| file | contents |
|---|---|
| `actor.py` | takes requests |
| `request.py` | one script, from its arrival to its answer |
| `transactions.py` | one run of a script, divided into transactions |
| `execution.py` | context of a script's statements |
| `plans.py` | cache of compiled texts |
| others | the statements, by subject |
"""
