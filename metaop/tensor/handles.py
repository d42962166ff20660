"""What registering a hook returns, of a tensor, a module or an optimizer."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Sequence
from typing import Any

from metaop.unified_graph.tracing import configured


class RemovableHandle:
    """Removes a hook: with `handle.remove()`, or at the end of the handle's `with` block."""

    _ids = itertools.count()

    def __init__(self, *places: Any) -> None:
        self.id = next(RemovableHandle._ids)
        self._places = [weakref.ref(place) for place in places]

    def remove(self) -> None:
        for reference in self._places:
            place = reference()
            if place is not None and self.id in place:
                if isinstance(place, set):
                    place.discard(self.id)
                else:
                    del place[self.id]
                configured("hooks")

    def __getstate__(self) -> tuple:
        return (self.id,)

    def __setstate__(self, state: tuple) -> None:
        self.id = state[0]
        self._places = []

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.remove()


class HandleInList(RemovableHandle):
    """Of a hook of a tensor or of its `grad_fn`, which lies in a list."""

    def __init__(self, hooks: list[Any], hook: Any) -> None:
        super().__init__()
        self._hooks, self._hook = hooks, hook

    def remove(self) -> None:
        if self._hook in self._hooks:
            self._hooks.remove(self._hook)

    def __setstate__(self, state: tuple) -> None:
        # A copy removes nothing, as that of a module's handle.
        super().__setstate__(state)
        self._hooks, self._hook = [], None


class SeveralHandles(RemovableHandle):
    """Of a hook that waits for the gradients of several tensors."""

    def __init__(self, handles: Sequence[RemovableHandle]) -> None:
        super().__init__()
        self._handles: tuple[RemovableHandle, ...] = tuple(handles)

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()

    def __setstate__(self, state: tuple) -> None:
        # A copy removes nothing, as that of a module's handle.
        super().__setstate__(state)
        self._handles = ()
