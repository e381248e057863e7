"""The life of a request.

| file | contents |
|---|---|
| `registry.py` | live requests: INFO FOR RUNNING, KILL, end of a session, limits on waiting |
"""
