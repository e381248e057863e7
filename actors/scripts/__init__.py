"""Running scripts: one actor, many scripts at once, each a greenlet that takes turns on the loop.

`actor.py` answers requests · `transactions.py` is one run · `execution.py` is what a statement sees
of it · `turns.py` and `workers.py` share the loop · `plans.py` keeps what is made of a text once ·
`answers.py` answers once it has ended · the other files are the statements, by subject.
"""
