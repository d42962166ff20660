"""Memory: buffers of tensors, what processes share, and the numbering of a program's buffers."""
