"""Functions of tensors: elementwise, along dimensions, by index, and creation."""
