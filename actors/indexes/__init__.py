"""Indexes at run time: their builds, folds of segments, trainings of lists, measurements of recall.

| file | contents |
|---|---|
| `service.py` | the index builder as others see it: messages to it, recent query vectors |
| `actor.py` | the index builder: builds in commits, and the slices of all below |
| `segment_folds.py` | folds and merges of segments of FULLTEXT and VECTOR indexes, on each node |
| `leader_task.py` | work of the leader on one index at a time, in turn |
| `vector_training.py` | trainings of lists by the leader, in a process of their own |
| `recall_renewal.py` | measurements by the leader: asked for by REBUILD, or stale |
| `metrics.py` | figures for /metrics |
"""
