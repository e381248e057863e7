"""Recursive-descent parser over tokens, one module for each family of statements.

Each module's class extends that of the previous one; `language.parser` is the entry point.
"""
