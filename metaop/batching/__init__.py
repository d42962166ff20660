"""Maps over a batch: recorded calls computed for all elements at once, by one rule per family."""
