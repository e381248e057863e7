"""Script execution: many scripts at once on one event loop, each a fiber (greenlet).

`actor.py` answers requests · `transactions.py` runs one script · `execution.py` is the context of
its statements · `turns.py` and `workers.py` schedule the fibers · `plans.py` caches compiled texts
· `answers.py` answers once a script has ended · the other files are the statements, by subject.
"""
