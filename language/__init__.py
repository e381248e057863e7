"""The statement language: lexer, parser, AST, printer, planner and compiler to Python functions.

Pure: it uses no file, socket, clock or actor. A running statement reaches the outside only through
`language.env.Env`.
"""
