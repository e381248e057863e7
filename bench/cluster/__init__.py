"""A cluster on this machine, for trying things out and for breaking them: `make cluster`.

| file | what it holds |
|---|---|
| `plan.py` | who is there: names, ports, directories; kept in `cluster/plan.json` |
| `processes.py` | etcd, the nodes and the network between them, which outlive a command |
| `network.py` | what stands for the network: every link goes through it, and it can be cut |
| `building.py` | from nothing to a secured cluster, by public statements alone |
| `faults.py` | what is done to it by chance |
| `histories/` | what clients of it do and are told, and whether that can be true |
| `chaos.py` | load, faults, and the judgement of what became of it |
"""
