"""The store: log segments, the state folded from them, transactions, and the rules of each noun."""
