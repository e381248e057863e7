"""Operations on messages: one engine for statements and the wire protocol.

| file | contents |
|---|---|
| `operations.py` | publish, take and settle, over one transaction |
| `engine.py` | runs operations that come without a script, many in one commit |
| `request.py` | one operation, from its frame to its answer |
| `texts.py` | the equivalent statements of operations |
"""
