"""Module: the base class of all layers and networks."""

from __future__ import annotations

from typing import Any

from metaop.errors import ArgumentTypeError, GradientError, UnsupportedError
from metaop.nn.hooks import HookNumbers, HookTable, everywhere, registered
from metaop.nn.module_call import CallMixin
from metaop.nn.module_conversion import ConversionMixin
from metaop.nn.module_html import html_of
from metaop.nn.module_state import StateMixin
from metaop.nn.module_tree import TreeMixin
from metaop.nn.parameter import Buffer, Parameter
from metaop.tensor.core import Tensor
from metaop.unified_graph.tracing import configured

_TABLES = ("_parameters", "_buffers", "_modules")


class Module(CallMixin, TreeMixin, ConversionMixin, StateMixin):
    """A part of a network: parameters, buffers, submodules, and a `forward` that uses them.

    Subclasses call `super().__init__()` first, assign parameters and submodules as attributes,
    and define `forward`.

    Inputs and results are those of `forward`, of any shape. Raises AttributeError for a submodule
    that is assigned before `super().__init__()`.

    >>> class Twice(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.inner = nn.Linear(3, 3)
    ...     def forward(self, x):
    ...         return self.inner(self.inner(x))
    >>> Twice()(metaop.ones(2, 3)).shape, len(list(Twice().parameters()))
    (metaop.Size([2, 3]), 2)
    """

    training: bool

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if args or kwargs:
            raise ArgumentTypeError(
                f"{type(self).__name__}.__init__() takes 1 positional argument but more were given",
                fix="call super().__init__() without arguments",
            )
        self.__dict__.update(
            training=True,
            _parameters={},
            _buffers={},
            _non_persistent_buffers_set=set(),
            _modules={},
            _backward_pre_hooks=HookTable(),
            _backward_hooks=HookTable(),
            _forward_hooks=HookTable(),
            _forward_hooks_with_kwargs=HookNumbers(),
            _forward_hooks_always_called=HookNumbers(),
            _forward_pre_hooks=HookTable(),
            _forward_pre_hooks_with_kwargs=HookNumbers(),
            _state_dict_hooks=HookTable(),
            _state_dict_pre_hooks=HookTable(),
            _load_state_dict_pre_hooks=HookTable(),
            _load_state_dict_post_hooks=HookTable(),
        )

    def forward(self, *input: Any) -> Any:
        """Computes the result of the module; every subclass defines it."""
        raise UnsupportedError(
            f'Module [{type(self).__name__}] is missing the required "forward" function',
            fix="define forward in the class",
        )

    # --- attributes -------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        own = self.__dict__
        for table in _TABLES:
            members = own.get(table)
            if members is not None and name in members:
                return members[name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __setattr__(self, name: str, value: Any) -> None:
        own = self.__dict__
        if isinstance(value, Parameter):
            self.__forget(name, except_for="_parameters")
            self.register_parameter(name, value)
        elif isinstance(value, Module):
            if "_modules" not in own:
                raise AttributeError("cannot assign module before Module.__init__() call")
            self.__forget(name, except_for="_modules")
            own["_modules"][name] = registered(everywhere.module_registration, self, name, value)
        elif "_parameters" not in own:
            if isinstance(value, Buffer):
                raise AttributeError("cannot assign buffer before Module.__init__() call")
            object.__setattr__(self, name, value)
        else:
            self.__set_other(name, value)

    def __set_other(self, name: str, value: Any) -> None:
        """Assigns a value that is neither a parameter nor a module."""
        own = self.__dict__
        if name in own["_parameters"]:
            if value is not None:
                raise _cannot_assign(value, "parameter", name, "nn.Parameter or None")
            own["_parameters"][name] = None
        elif name in own["_modules"]:
            if value is not None:
                raise _cannot_assign(value, "child module", name, "nn.Module or None")
            own["_modules"][name] = None
        elif isinstance(value, Buffer) or name in own["_buffers"]:
            if value is not None and not isinstance(value, Tensor):
                raise _cannot_assign(value, "buffer", name, "Tensor or None")
            if isinstance(value, Buffer):
                self.__forget(name, except_for="_buffers")
                own["_non_persistent_buffers_set"].discard(name)
                if not value.persistent:
                    own["_non_persistent_buffers_set"].add(name)
            own["_buffers"][name] = registered(everywhere.buffer_registration, self, name, value)
        else:
            if own.get(name, self) is not value:
                configured(f"{type(self).__name__}.{name}")
            object.__setattr__(self, name, value)

    def __forget(self, name: str, except_for: str) -> None:
        own = self.__dict__
        own.pop(name, None)
        for table in _TABLES:
            if table != except_for and table in own:
                own[table].pop(name, None)
        if except_for != "_buffers" and "_non_persistent_buffers_set" in own:
            own["_non_persistent_buffers_set"].discard(name)

    def __delattr__(self, name: str) -> None:
        for table in _TABLES:
            members = self.__dict__.get(table)
            if members is not None and name in members:
                del members[name]
                self._non_persistent_buffers_set.discard(name)
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        names = {*dir(type(self)), *self.__dict__}
        for table in _TABLES:
            names.update(self.__dict__.get(table, ()))
        return sorted(name for name in names if not name[0].isdigit())

    # --- registration -----------------------------------------------------------------------

    def __check_name(self, kind: str, table: str, name: str) -> None:
        if not isinstance(name, str):
            raise ArgumentTypeError(
                f"{kind} name should be a string. Got {type(name).__name__}", fix="pass a string"
            )
        if "." in name:
            raise KeyError(f'{kind} name can\'t contain ".", got: {name}')
        if not name:
            raise KeyError(f'{kind} name can\'t be empty string ""')
        if hasattr(self, name) and name not in self.__dict__[table]:
            raise KeyError(f"attribute '{name}' already exists")

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Adds a buffer under `name`; `persistent` buffers are part of the state_dict."""
        if "_buffers" not in self.__dict__:
            raise AttributeError("cannot assign buffer before Module.__init__() call")
        self.__check_name("buffer", "_buffers", name)
        if tensor is not None and not isinstance(tensor, Tensor):
            raise _cannot_assign(tensor, "buffer", name, "metaop Tensor or None")
        value = registered(everywhere.buffer_registration, self, name, tensor)
        self._buffers[name] = value
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Adds a parameter under `name`."""
        if "_parameters" not in self.__dict__:
            raise AttributeError("cannot assign parameter before Module.__init__() call")
        self.__check_name("parameter", "_parameters", name)
        if param is not None and not isinstance(param, Parameter):
            raise _cannot_assign(param, "parameter", name, "nn.Parameter or None")
        if param is not None and not param.is_leaf:
            raise GradientError(
                f"Cannot assign non-leaf Tensor to parameter '{name}'",
                fix="compute the tensor in forward instead",
            )
        self._parameters[name] = registered(everywhere.parameter_registration, self, name, param)

    def add_module(self, name: str, module: Module | None) -> None:
        """Adds a submodule under `name`."""
        if module is not None and not isinstance(module, Module):
            raise ArgumentTypeError(
                f"{type(module).__name__} is not a Module subclass", fix="pass an nn.Module"
            )
        self.__check_name("module", "_modules", name)
        self._modules[name] = registered(everywhere.module_registration, self, name, module)

    def register_module(self, name: str, module: Module | None) -> None:
        """An alias of `add_module`."""
        self.add_module(name, module)

    # --- text -------------------------------------------------------------------------------

    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        """The text between the parentheses of the repr; subclasses override it."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        children = [f"({name}): {indented(repr(module))}" for name, module in self._modules.items()]
        if len(lines) == 1 and not children:
            return f"{self._get_name()}({extra})"
        if not lines and not children:
            return f"{self._get_name()}()"
        body = "\n  ".join([*lines, *children])
        return f"{self._get_name()}(\n  {body}\n)"

    def _repr_html_(self) -> str:
        return html_of(self)

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Does nothing: every module is compiled when it runs."""


def indented(text: str) -> str:
    return text.replace("\n", "\n  ")


def _cannot_assign(value: Any, kind: str, name: str, wanted: str) -> ArgumentTypeError:
    return ArgumentTypeError(
        f"cannot assign '{type(value).__name__}' as {kind} '{name}' ({wanted} expected)",
        fix=f"assign a {wanted}",
    )
