"""Running scripts: one actor, many scripts at once, each a greenlet that takes turns on the loop.

`actor.py` answers requests · `execution.py` is one run · `turns.py` shares the loop · `prepared.py`
keeps what was parsed and compiled · the other files are the statements, by subject.
"""
