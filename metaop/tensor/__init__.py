"""The Tensor and the functions on it."""
