"""Topics while the node runs: who waits for messages, and what has to be done without being asked.

Statements on topics work through the transactions of their scripts. What time brings by itself is
done by one actor for each topic.

| file | what it holds |
|---|---|
| `service.py` | what each topic has to come, one timer for all, what commits bring |
| `due.py` | the actor of one topic: what is due |
| `waiting.py` | who waits for messages, and in which order |
| `deadlines.py` | deadlines that a slow disk uses up |
| `metrics.py` | what /metrics shows |
"""

from actors.topics.deadlines import LateDeadlines
from actors.topics.due import TopicActor
from actors.topics.metrics import GroupFigures, TopicFigures
from actors.topics.service import HandedOut, Topics
from actors.topics.waiting import Of, Queue, Wait, Waits

__all__ = [
    "GroupFigures", "HandedOut", "LateDeadlines", "Of", "Queue", "TopicActor", "TopicFigures",
    "Topics", "Wait", "Waits",
]  # fmt: skip
