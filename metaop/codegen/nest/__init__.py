"""Loop nests, the only low-level IR, and static analyses of single nests."""
