"""Operations on messages: the one engine for them, called by statements and wire alike.

| file | what it holds |
|---|---|
| `operations.py` | what each does, over one transaction |
| `engine.py` | runs those that come without a script, many in one commit |
| `request.py` | one of them, from its frame to its answer |
| `texts.py` | the statements that they stand for |
"""
