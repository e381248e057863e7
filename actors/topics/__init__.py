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
