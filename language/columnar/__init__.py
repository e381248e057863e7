"""SELECT over columns: the parts of a statement that arrays of values answer, a segment at a time.

`plan` judges a statement without numpy; the other modules are imported when columns are read.
`vectors` are the arrays, `expressions` evaluates conditions and values over them, `aggregation`
groups, and `selection` finds the rows of a statement that is not grouped. A segment that they
can't answer exactly as by row raises `Unfit`, and is read by row in the same statement.
"""
