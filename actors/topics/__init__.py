"""Topics at run time: waiting consumers, expiry of ack deadlines, retention.

Statements on topics run in the transactions of their scripts. Work that becomes due by time is done
by one actor for each topic.

| file | contents |
|---|---|
| `service.py` | effects of commits, lead and roles: the topics of the node as others see them |
| `schedules.py` | when each topic has due work, one timer for all, the actors that do it |
| `due.py` | the actor of one topic: expiry, redelivery, retention |
| `waiting.py` | scripts that wait for messages, and their order |
| `deadlines.py` | ack deadlines that a slow disk uses up |
| `metrics.py` | figures for /metrics |
"""
