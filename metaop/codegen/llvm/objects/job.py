"""A module to compile, as processes pass it to each other."""

from __future__ import annotations

from dataclasses import dataclass, field

from metaop.codegen.caches.disk import DiskCache, shared_cache
from metaop.codegen.llvm.objects.object_code import compile_object
from metaop.codegen.llvm.objects.stored import store_object, stored_object, unpacked_text
from metaop.codegen.llvm.target import Target


@dataclass(eq=False)
class Job:
    """The packed text of a module, and its object once it is compiled, quickly or for speed.

    One with a key is stored on disk.
    """

    packed: bytes
    target: Target
    key: str | None = None
    quick: bool = False
    cache: DiskCache | None = field(default_factory=shared_cache)
    content: bytes | None = None
    was_stored: bool = False

    def do(self) -> None:
        """Reads the object that another process has stored by now, or compiles and stores it.

        Raises `InternalError` with LLVM's message if the text is not a valid module.
        """
        found = self.key and stored_object(self.key, self.quick, self.cache)
        if found:
            self.was_stored, self.content = True, found.content
            return
        content = compile_object(unpacked_text(self.packed), self.target, quick=self.quick)
        if self.key:
            store_object(self.key, content, self.packed if self.quick else None, self.cache)
        self.content = content
