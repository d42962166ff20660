"""The functions on tensors: of elements, along dimensions, of places, and what makes tensors."""
