"""Topics at run time: waiting consumers, expiry of ack deadlines, retention.

Statements on topics run in the transactions of their scripts. Work that becomes due by time is done
by one actor for each topic.

| file | contents |
|---|---|
| `service.py` | schedule of each topic, one timer for all, effects of commits |
| `due.py` | the actor of one topic: expiry, redelivery, retention |
| `waiting.py` | scripts that wait for messages, and their order |
| `deadlines.py` | ack deadlines that a slow disk uses up |
| `metrics.py` | figures for /metrics |
"""

from actors.topics.deadlines import LateDeadlines
from actors.topics.due import TopicActor
from actors.topics.metrics import GroupFigures, TopicFigures
from actors.topics.service import DeliveredMessages, TopicService
from actors.topics.waiting import StatementWait, TopicWaits, WaitQueue, WaitTarget

__all__ = [
    "GroupFigures", "DeliveredMessages", "LateDeadlines", "WaitTarget", "WaitQueue", "TopicActor",
    "TopicFigures", "TopicService", "StatementWait", "TopicWaits",
]  # fmt: skip
