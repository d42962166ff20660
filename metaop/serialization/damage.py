"""What is wrong with a file, told before its name is known; `load` adds the name."""

from __future__ import annotations


class Damage(Exception):
    """A reason why a file cannot be read, worded to follow its name, and perhaps a fix."""

    def __init__(self, reason: str, *, fix: str = "") -> None:
        super().__init__(reason)
        self.fix = fix
