"""What makes functions and methods of metaop record a step when they meet a proxy.

They are plain functions, which users hold in attributes, tables, closures and partial functions, so
that replacing the names of modules would miss some. While there is a proxy, therefore, the
functions themselves have other code, which looks for proxies among the arguments. Without proxies
nothing is changed, and a call costs what it did.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from types import CodeType, FunctionType
from typing import Any

from metaop.fx.immutable_collections import map_aggregate
from metaop.fx.naming import public_functions
from metaop.tensor.core import Tensor

__all__ = ["Watched", "find", "watching"]

# These answer for a proxy as PyTorch's do, which do not record either.
_PLAIN = frozenset(("is_tensor", "is_storage", "typename", "_is_view"))
_PLAIN_METHODS = frozenset(
    """
    __array__ __array_wrap__ __copy__ __deepcopy__ __delattr__ __dir__ __format__
    __getattribute__ __getstate__ __hash__ __init__ __init_subclass__ __iter__ __new__ __reduce__
    __reduce_ex__ __repr__ __setattr__ __sizeof__ __str__ __subclasshook__
    """.split()
)
# PyTorch's operators of tensors are methods of these names.
_METHOD_NAMES = {
    **{f"__{name}__": name for name in "add sub mul matmul pow eq ne lt le gt ge".split()},
    "__truediv__": "div",
}


class Watched:
    """Something that functions of metaop look for among their arguments."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        watching.begin()
        return object.__new__(cls)

    def __del__(self) -> None:
        watching.end()

    def record_call(self, function: Callable[..., Any] | str, args: Any, kwargs: Any) -> Any:
        """Records a call of a function, or of the method of a name."""
        raise NotImplementedError


def find(*nests: Any) -> Watched | None:
    """The first of what is looked for in nested arguments."""
    found: list[Watched] = []

    def look(value: Any) -> Any:
        if isinstance(value, Watched):
            found.append(value)
        return value

    for nest in nests:
        map_aggregate(nest, look)
    return found[0] if found else None


class _Intercepted:
    """A function whose code is exchanged: its own code, and what a call of it is recorded as."""

    def __init__(self, function: FunctionType, is_public: bool, method: str) -> None:
        self.function = function
        self.is_public = is_public
        self.method = method
        self.code = function.__code__
        self.named_defaults = function.__kwdefaults__
        self.original = FunctionType(
            self.code, function.__globals__, function.__name__, function.__defaults__,
            function.__closure__,
        )  # fmt: skip
        self.original.__kwdefaults__ = self.named_defaults
        self.stub = _stub(len(self.code.co_freevars))

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        found = find(args, kwargs)
        if found is None:
            return self.original(*args, **kwargs)
        by_method = self.method and not (self.is_public and isinstance(args[0], Watched))
        return found.record_call(self.method if by_method else self.function, args, kwargs)

    def exchange(self) -> None:
        """Has the function ask here."""
        self.function.__kwdefaults__ = {**(self.named_defaults or {}), "_intercepted": self}
        self.function.__code__ = self.stub

    def restore(self) -> None:
        """Gives the function its own code again."""
        self.function.__code__ = self.code
        # mypy takes the defaults for a dictionary; None is how a function has none.
        self.function.__kwdefaults__ = self.named_defaults  # type: ignore[assignment]


@cache
def _stub(free: int) -> CodeType:
    """The code that asks instead; a function only takes code with as many free names as it has."""
    names = [f"free_{number}" for number in range(free)]
    source = (
        f"def around({', '.join(names)}):\n"
        "    def stub(*args, _intercepted, **kwargs):\n"
        "        return _intercepted(args, kwargs)\n"
        f"        ({' '.join(f'{name},' for name in names)})\n"
        "    return stub\n"
    )
    values: dict[str, Any] = {}
    exec(source, values)
    return values["around"](*names).__code__


class _Watching:
    """Whether functions look for proxies: as long as anybody asked for it and has not ended it."""

    def __init__(self) -> None:
        self._count = 0
        self._lock = threading.RLock()
        self._intercepted: list[_Intercepted] = []

    def begin(self) -> None:
        """Has functions look for proxies until `end` is called as often."""
        with self._lock:
            self._count += 1
            if self._count == 1:
                self._intercepted = self._intercepted or _intercepted()
                for one in self._intercepted:
                    one.exchange()

    def end(self) -> None:
        """Undoes one `begin`."""
        with self._lock:
            self._count -= 1
            if self._count == 0:
                for one in self._intercepted:
                    one.restore()

    def __enter__(self) -> None:
        self.begin()

    def __exit__(self, *error: Any) -> None:
        self.end()


watching = _Watching()


def _intercepted() -> list[_Intercepted]:
    methods: dict[FunctionType, str] = {}
    for owner in Tensor.__mro__:
        for name, value in vars(owner).items():
            if isinstance(value, FunctionType) and name not in _PLAIN_METHODS:
                methods.setdefault(value, _METHOD_NAMES.get(name, name))
    public = public_functions()
    return [
        _Intercepted(function, function in public, methods.get(function, ""))
        for function in {**public, **methods}
        if function.__name__ not in _PLAIN
    ]
