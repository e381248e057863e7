"""Recursive descent over the tokens, one module for each family of statements.

Each module's class adds its statements to the one before it; `language.parser` is the way in.
"""
