"""The rows of the function table, one module a subject."""
