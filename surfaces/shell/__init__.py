"""`storenode shell`, `import` and `export`: clients of a node that runs, over the wire.

They know the language, to see where a statement ends and what must not be remembered, and reach the
node through `storeclient` alone: nothing here touches a store.
"""
