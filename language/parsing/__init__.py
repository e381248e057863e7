"""Recursive-descent parser over tokens, one module for each family of statements.

The class of each module extends those whose syntax it needs; `language.parser` is the entry point.
"""
