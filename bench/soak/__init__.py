"""Everything at once, for an hour: what grows?

    work.py      what clients do: records, keys, messages, scripts, sign-ins, on both surfaces
    watch.py     what the node takes meanwhile, sampled from outside
    judge.py     whether a series grows without bound
    drawing.py   the samples as one picture
    small.py     the node with little room for what fills up, so that minutes are enough

`make soak MINUTES=60` writes build/soak/samples.csv and soak.svg, and fails when something grows;
`make soak MINUTES=6 SMALL=1` does with small bounds.
"""
