"""Shell: `storenode shell`, `import` and `export`, clients of a running node over the wire.

They use the language package to see where a statement ends and which statements must not be kept in
the history. They reach the node through `storeclient` alone: nothing here touches a store.
"""
