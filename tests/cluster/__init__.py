"""A cluster on this machine, for trying things out and for fault injection: `make cluster`.

| file | what it holds |
|---|---|
| `plan.py` | the members: names, ports, directories; kept in `cluster/plan.json` |
| `processes.py` | etcd, the nodes and the network between them, which outlive a command |
| `network.py` | proxy of every link, which can cut and delay it |
| `building.py` | from nothing to a secured cluster, by public statements alone |
| `faults.py` | random faults (nemesis) |
| `histories/` | operations of clients, their answers, and the checkers of both |
| `chaos.py` | chaos test: load, faults, and the check of the outcome |
"""
