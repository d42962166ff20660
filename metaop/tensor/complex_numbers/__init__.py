"""Complex tensors, as pairs of real ones."""
