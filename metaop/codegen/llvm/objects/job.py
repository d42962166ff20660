"""A module to compile, as processes pass it to each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from metaop.codegen.caches.disk import DiskCache, shared_cache
from metaop.codegen.llvm.objects.object_code import compile_object
from metaop.codegen.llvm.objects.stored import store_object, stored_object, unpacked_text
from metaop.codegen.llvm.target import Target


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

    def do(self) -> None:
        """Reads the object that another process has stored by now, or compiles and stores it.

        Raises `InternalError` with LLVM's message if the text is not a valid module.
        """
        key, *others = self.stored or [None]
        # What is stored under one of several keys may be better code, which suits that one alone.
        found = None if key is None or others else stored_object(key, self.quick, self.cache)
        if found:
            self.was_stored, self.content = True, found.content
            return
        content = compile_object(unpacked_text(self.packed), self.target, quick=self.quick)
        for key, packed in self.stored.items():
            store_object(key, content, packed, self.cache)
        self.content = content
