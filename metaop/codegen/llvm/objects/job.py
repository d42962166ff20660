"""A module to compile, as processes pass it to each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from metaop.codegen.caches.disk import DiskCache, shared_cache
from metaop.codegen.llvm.objects.object_code import compile_object
from metaop.codegen.llvm.objects.stored import store_object, stored_object, unpacked_text
from metaop.codegen.llvm.target import Target

# The seconds for which a process waits for another one that compiles the same module.
_PATIENCE = 30.0


@dataclass(eq=False)
class Job:
    """The packed text of a module, and its object once it is compiled.

    The object is stored on disk under some keys. It is quick code if these have packed texts, of
    which better code will be made.
    """

    packed: bytes
    target: Target
    stored: Mapping[str, bytes | None] = field(default_factory=dict)
    cache: DiskCache | None = field(default_factory=shared_cache)
    content: bytes | None = None
    was_stored: bool = False

    @property
    def quick(self) -> bool:
        """Whether quick code will do."""
        return any(self.stored.values())

    def do(self, wait: bool = True) -> None:
        """Reads the object that another process has stored by now, or compiles and stores it.

        If another process is compiling it, waits for that one, or leaves the content for later.
        Raises `InternalError` with LLVM's message if the text is not a valid module.
        """
        if self.cache is None or not self.stored:
            self._compile()
            return
        turn = self.cache.alone(self._name, _PATIENCE if wait else 0.0)
        with turn as is_alone:
            self.content = self._found()
            self.was_stored = self.content is not None
            if self.content is None and (is_alone or wait):
                self._compile()

    @property
    def _name(self) -> str:
        """What processes call the job."""
        return f"{next(iter(self.stored))}-{'quick' if self.quick else 'fast'}"

    def _found(self) -> bytes | None:
        """The object that is stored under all keys; one of them may have better code of its own."""
        found = {stored_object(key, self.quick, self.cache) for key in self.stored}
        (first, *others) = {one and one.content for one in found}
        return None if others else first

    def _compile(self) -> None:
        content = compile_object(unpacked_text(self.packed), self.target, quick=self.quick)
        for key, packed in self.stored.items():
            store_object(key, content, packed, self.cache)
        self.content = content
