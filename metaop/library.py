"""Operators that a program registers: functions with a name, gradients and kernels of devices.

`metaop.ops.NAMESPACE.NAME` reaches what `custom_op("NAMESPACE::NAME", ...)` made.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias

from metaop.autograd.function import Function
from metaop.errors import ArgumentError, ArgumentTypeError, GradientError, UnsupportedError
from metaop.tensor.core import Tensor
from metaop.tensor.grad_mode import is_grad_enabled, no_grad
from metaop.unified_graph.tensor_type import Device

__all__ = [
    "CustomOpDef",
    "custom_op",
    "impl_abstract",
    "register_autograd",
    "register_fake",
    "register_kernel",
]

DeviceTypes: TypeAlias = str | Sequence[str] | None
# How many tensors each argument is a list of; None for an argument that is no list of tensors.
_Lengths: TypeAlias = tuple[int | None, ...]

operators: dict[str, CustomOpDef] = {}


def custom_op(
    name: str,
    fn: Callable[..., Any] | None = None,
    /,
    *,
    mutates_args: str | Iterable[str],
    device_types: DeviceTypes = None,
    schema: str | None = None,
) -> Any:
    """Makes an operator called "NAMESPACE::NAME" of a function, or of the one it decorates.

    The function runs when the operator is called, and nothing in it is recorded for gradients:
    these come from `register_autograd`. It serves all devices, or those of `device_types`. Its
    parameters and its result have to be annotated, unless `schema` describes them; of that, only
    the marks of written arguments are read, which have to be those of `mutates_args`: names, or
    "unknown". The result must not be one of the arguments. Raises ArgumentError for other
    functions.

    >>> @metaop.library.custom_op("docs::twice", mutates_args=())
    ... def twice(x: metaop.Tensor) -> metaop.Tensor:
    ...     return x * 2
    >>> twice.register_autograd(lambda ctx, gradient: gradient * 2)
    >>> x = metaop.ones(1, requires_grad=True)
    >>> metaop.ops.docs.twice(x).backward()
    >>> x.grad
    tensor([2.])
    """

    def make(function: Callable[..., Any]) -> CustomOpDef:
        signature = inspect.signature(function)
        written = mutates_args if isinstance(mutates_args, str) else {*mutates_args}
        _check(signature, written, schema)
        operator = CustomOpDef(name, signature, is_functional=not written)
        operator.register_kernel(device_types, function)
        operators[name] = operator
        return operator

    return make if fn is None else make(fn)


def _check(signature: inspect.Signature, written: str | set[str], schema: str | None) -> None:
    """Raises ArgumentError for functions and descriptions that PyTorch refuses."""
    parameters = signature.parameters
    if isinstance(written, str) and written != "unknown":
        raise ArgumentError(
            f"mutates_args={written!r} is neither names nor 'unknown'", fix="pass a set of names"
        )
    if schema is not None:
        marked = {*re.findall(r"!\)[][\d?]*\s+(\w+)", schema)}
        if marked != written:
            raise ArgumentError(
                f"the schema marks {sorted(marked)} as written, mutates_args names {written!r}",
                fix="name the same arguments",
            )
        return
    for name, parameter in parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ArgumentError(
                f"parameter {name} of an operator has to be passed by position and by name",
                fix="write it without a star or a slash",
            )
        if parameter.annotation is parameter.empty:
            raise ArgumentError(
                f"Parameter {name} must have a type annotation", fix="annotate it, or pass schema="
            )
    if signature.return_annotation is signature.empty:
        raise ArgumentError(
            "No return type annotation was provided", fix="annotate it, or pass schema="
        )
    if not isinstance(written, str) and not written <= parameters.keys():
        raise ArgumentError(
            f"mutates_args names {sorted(written - parameters.keys())}, which are no parameters",
            fix=f"the parameters are {', '.join(parameters)}",
        )


@dataclass
class _Run:
    """One call of an operator: what `Function` needs to know beside the tensors."""

    keywords: dict[str, Any]
    inputs: _Lengths
    outputs: _Lengths = ()
    is_tuple: bool = False


class CustomOpDef:
    """An operator that `custom_op` made; call it like the function."""

    def __init__(self, name: str, signature: inspect.Signature, *, is_functional: bool) -> None:
        if not re.fullmatch(r"\w+::\w+", name):
            raise ArgumentError(f"{name!r} names no operator", fix='use "namespace::name"')
        self._name = name
        self._signature = signature
        self._is_functional = is_functional
        self._kernels: dict[str | None, Callable[..., Any]] = {}
        self._fake: Callable[..., Any] | None = None
        self._backward: Callable[..., Any] | None = None
        self._setup_context: Callable[..., Any] | None = None
        self._function = _function_of(self)

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._name})>"

    @property
    def default(self) -> CustomOpDef:
        """The operator itself: it has one overload."""
        return self

    def register_kernel(
        self, device_types: DeviceTypes, fn: Callable[..., Any] | None = None, /
    ) -> Callable[..., Any]:
        """Registers a function, or the one it decorates, for types of devices; None means all."""

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            is_one = device_types is None or isinstance(device_types, str)
            for kind in [device_types] if is_one else device_types:  # type: ignore[union-attr]
                self._kernels[kind] = function  # type: ignore[index]
            return function

        return register if fn is None else register(fn)

    def register_fake(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        """Registers what makes results without values, for tensors on "meta"."""
        self._fake = fn
        return fn

    def register_autograd(
        self,
        backward: Callable[..., Any],
        /,
        *,
        setup_context: Callable[..., Any] | None = None,
    ) -> None:
        """Registers the gradient, written as for `autograd.Function`.

        `setup_context(ctx, inputs, output)` has another parameter, `keyword_only_inputs`, when the
        operator has arguments by keyword only. A list of tensors among the arguments has a list of
        gradients. Raises ArgumentError for operators that write their arguments.
        """
        if not self._is_functional:
            raise ArgumentError(
                f"{self} writes its arguments, so it can have no gradient",
                fix="register the gradient of an operator that returns new tensors",
            )
        self._backward, self._setup_context = backward, setup_context

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise ArgumentTypeError(
                f"{self._name}(): {error}", fix=f"its signature is {self._signature}"
            ) from None
        bound.apply_defaults()
        inputs, keywords = bound.args, bound.kwargs
        lengths = _lengths(inputs)
        leaves = list(_flat(inputs, lengths))
        if not (
            is_grad_enabled() and any(isinstance(x, Tensor) and x.requires_grad for x in leaves)
        ):
            return self._compute(inputs, keywords)
        run = _Run(keywords, lengths)
        results = _nested(self._function.apply(run, *leaves), run.outputs)
        return results if run.is_tuple else results[0]

    def _compute(self, inputs: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """The result of the kernel for the device of the arguments."""
        leaves = list(_flat(inputs, _lengths(inputs)))
        kernel = self._kernel(leaves)
        with no_grad():
            result = kernel(*inputs, **keywords)
        results = result if isinstance(result, tuple) else (result,)
        given = {id(x) for x in leaves if isinstance(x, Tensor)}
        if any(id(x) in given for x in _flat(results, _lengths(results))):
            raise ArgumentError(
                f"The output of {self._name} is one of its inputs",
                fix="return a clone, or nothing when the input was written",
            )
        return result

    def _kernel(self, leaves: list[Any]) -> Callable[..., Any]:
        kinds = {x.device.type for x in leaves if isinstance(x, Tensor)}
        kinds = kinds or {x.type for x in leaves if isinstance(x, Device)}
        # As in PyTorch, "meta" goes before "cuda", which goes before "cpu".
        kind = max(kinds, default="cpu")
        if kind == "meta":
            if self._fake is None:
                raise UnsupportedError(
                    f"There was no fake impl registered for {self}",
                    fix="register one with register_fake, or use tensors with values",
                )
            return self._fake
        kernel = self._kernels.get(kind, self._kernels.get(None))
        if kernel is None:
            raise UnsupportedError(
                f"Could not run {self._name!r} with arguments from the {kind.upper()!r} backend",
                fix=f'register a function with register_kernel("{kind}")',
            )
        return kernel


def _function_of(operator: CustomOpDef) -> type[Function]:
    """The operator on a flat list of arguments, as an `autograd.Function`."""

    def forward(ctx: Any, run: _Run, *leaves: Any) -> tuple[Any, ...]:
        inputs = _nested(leaves, run.inputs)
        result = operator._compute(inputs, run.keywords)
        ctx._run, ctx.needs_input_grad = run, _nested(ctx.needs_input_grad[1:], run.inputs)
        if operator._setup_context is not None:
            extra = {"keyword_only_inputs": run.keywords} if run.keywords else {}
            operator._setup_context(ctx=ctx, inputs=inputs, output=result, **extra)
        run.is_tuple = isinstance(result, tuple)
        results = result if run.is_tuple else (result,)
        run.outputs = _lengths(results)
        return tuple(_flat(results, run.outputs))

    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        if operator._backward is None:
            raise GradientError(
                f"Trying to backward through {operator._name} but no autograd formula was "
                "registered",
                fix="use register_autograd to add one",
            )
        found = operator._backward(ctx, *_nested(gradients, ctx._run.outputs))
        found = found if isinstance(found, tuple) else (found,)
        lengths = ctx._run.inputs
        if len(found) != len(lengths) or any(
            length is not None and (not isinstance(x, (list, tuple)) or len(x) != length)
            for x, length in zip(found, lengths)
        ):
            raise GradientError(
                "Expected the return from backward to be of the same structure as the inputs of "
                f"{operator._name}",
                fix="return one gradient, or None, per argument, and a list for a list of tensors",
            )
        return (None, *_flat(found, lengths))

    name = f"GeneratedBackwardFor_{operator._name.replace('::', '_')}_default"
    parts = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type(name, (Function,), parts)


def _lengths(values: Iterable[Any]) -> _Lengths:
    return tuple(
        len(x)
        if isinstance(x, (list, tuple)) and x and all(isinstance(y, Tensor) for y in x)
        else None
        for x in values
    )


def _flat(values: Iterable[Any], lengths: _Lengths) -> Iterator[Any]:
    for value, length in zip(values, lengths):
        yield from [value] if length is None else value


def _nested(leaves: Iterable[Any], lengths: _Lengths) -> tuple[Any, ...]:
    rest = iter(leaves)
    return tuple(next(rest) if length is None else list(islice(rest, length)) for length in lengths)


def _found(op: str | CustomOpDef) -> CustomOpDef:
    if isinstance(op, CustomOpDef):
        return op
    if op not in operators:
        raise ArgumentError(f"operator {op} does not exist", fix="register it with custom_op")
    return operators[op]


def register_kernel(
    op: str | CustomOpDef, device_types: DeviceTypes, func: Callable[..., Any] | None = None, /
) -> Callable[..., Any]:
    """Registers a function of an operator for types of devices; see `CustomOpDef`."""
    return _found(op).register_kernel(device_types, func)


def register_fake(
    op: str | CustomOpDef, func: Callable[..., Any] | None = None, /
) -> Callable[..., Any]:
    """Registers what makes results of an operator without values; see `CustomOpDef`."""
    register = _found(op).register_fake
    return register if func is None else register(func)


impl_abstract = register_fake


def register_autograd(
    op: str | CustomOpDef,
    backward: Callable[..., Any],
    /,
    *,
    setup_context: Callable[..., Any] | None = None,
) -> None:
    """Registers the gradient of an operator; see `CustomOpDef`."""
    _found(op).register_autograd(backward, setup_context=setup_context)
