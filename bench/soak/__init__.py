"""Soak test: all features at once, for an hour, to find resource leaks.

    work.py      workload: records, keys, messages, scripts, sign-ins, on both surfaces
    watch.py     resources of the node, sampled from outside
    judge.py     whether a series grows without bound
    drawing.py   the samples as one picture
    small.py     the node with small bounds for caches and logs, so that minutes are enough

`make soak MINUTES=60` writes build/soak/samples.csv and soak.svg, and fails when a series grows;
`make soak MINUTES=6 SMALL=1` runs with small bounds.
"""
