"""Loop nests, the only low-level IR, and what can be told of one nest without compiling it."""
