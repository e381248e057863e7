"""Running scripts: one actor, many scripts at once, each a greenlet that takes turns on the loop.

`actor.py` answers requests · `transactions.py` is one run · `execution.py` is what a statement sees
of it · `turns.py` shares the loop · `plans.py` keeps what is made of a text once · the other files
are the statements, by subject.
"""
