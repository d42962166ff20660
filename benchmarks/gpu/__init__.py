"""Training steps on a GPU: measured where there is one, predicted where there is none."""
