"""Tells programs that the library behind PyTorch's module of this name is not used."""


def is_available() -> bool:
    """Never."""
    return False
