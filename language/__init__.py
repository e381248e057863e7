"""The statement language: text to tree, tree back to text, tree to Python functions.

Pure: no file, socket, clock or actor. What a running statement needs from outside comes through
`language.env.Env`.
"""
