"""Composites: the high-level operators that a user's call records, one node per call.

A composite owns an *expansion*, a pure function from symbolic inputs to meta-operator nodes. A
`Signature` is a composite applied to attributes and input types; its expansion, and with it the
result types, is computed once and kept.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from metaop.errors import DeviceError, InternalError
from metaop.unified_graph.interning import InternTable, with_plain_numbers
from metaop.unified_graph.node import Node, input_node, topological
from metaop.unified_graph.rewrite import rebuild
from metaop.unified_graph.structure import Structure, structure_of
from metaop.unified_graph.tensor_type import CPU, Device, TensorType

if TYPE_CHECKING:
    from metaop.unified_graph.shape_rule import ShapeRule

# How many signatures of a composite are kept although neither a call nor a program holds them.
_SIGNATURES = 1 << 10

Expansion = Callable[..., "Node | tuple[Node, ...]"]
# The type of the only result for input types and attributes; None where only expanding tells it.
KnownType = Callable[..., "TensorType | None"]


class _NegativeZero(float):
    """A -0.0 that equals only itself: signatures are looked up by their attributes."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)


_NEGATIVE_ZERO = _NegativeZero(-0.0)


def with_exact_zeros(attributes: tuple[Any, ...]) -> tuple[Any, ...]:
    """The attributes, with every -0.0 made distinct from 0."""
    for position, value in enumerate(attributes):
        if type(value) is float and value == 0 and math.copysign(1, value) < 0:
            rest = with_exact_zeros(attributes[position + 1 :])
            return (*attributes[:position], _NEGATIVE_ZERO, *rest)
    return attributes


def with_one_nan(attributes: tuple[Any, ...]) -> tuple[Any, ...]:
    """The attributes, with every NaN replaced by one object, so that equal signatures are found."""
    for position, value in enumerate(attributes):
        if type(value) is float and value != value and value is not math.nan:
            rest = with_one_nan(attributes[position + 1 :])
            return (*attributes[:position], math.nan, *rest)
    return attributes


class Derivation(NamedTuple):
    """The origin of a composite that was derived from a signature: a gradient or a batched form.

    `asked` says what was derived from the signature `source`; `again` derives the same from
    another signature.
    """

    source: Signature
    asked: Hashable
    again: Callable[[Signature], Composite | None]


# The names of parameters that are dimensions.
_DIMENSIONS = frozenset(("dim", "dims"))


class Composite:
    """An operator defined by its expansion into meta-operators.

    The expansion is called as `expansion(*inputs, *attributes)`, or with all inputs in one tuple
    when the composite is `variadic`. Absent optional inputs are None. Calling the composite on
    nodes runs the expansion, so composites are built from composites. Without `by_rule`, no rule
    says types: what gradients keep depends on more than the structure. `known_type` tells the type
    of the result of some signatures, which cannot fail; they are expanded when something needs it.
    """

    __slots__ = (
        *("name", "expansion", "variadic", "differentiable", "derivation", "by_rule"),
        *("known_type", "signatures", "dimensions"),
    )

    def __init__(
        self,
        name: str,
        expansion: Expansion,
        variadic: bool = False,
        differentiable: bool = True,
        derivation: Derivation | None = None,
        by_rule: bool = True,
        known_type: KnownType | None = None,
    ) -> None:
        self.name = name
        self.expansion = expansion
        self.variadic = variadic
        self.differentiable = differentiable
        self.derivation = derivation
        self.by_rule = by_rule
        self.known_type = known_type
        self.signatures: InternTable[Signature] = InternTable(_SIGNATURES)
        # The places of the expansion's parameters that are dimensions.
        code = getattr(expansion, "__code__", None)
        parameters = () if code is None else code.co_varnames[: code.co_argcount]
        self.dimensions = [k for k, one in enumerate(parameters) if one in _DIMENSIONS]

    def __call__(self, *arguments: Any) -> Any:
        return self.expansion(*arguments)

    def signature(
        self, types: tuple[TensorType | None, ...], attributes: tuple[Any, ...]
    ) -> Signature:
        """The signature for these input types and attributes; expanded on first use."""
        key = (types, with_one_nan(attributes))
        found = self.signatures.get(key) or self.signatures.revive(key)
        if found is None:
            key = (types, with_plain_numbers(key[1]))
            found = self.signatures.add(key, Signature(self, *key, by_rule=self.by_rule))
        return found

    def __repr__(self) -> str:
        return self.name


def composite(
    function: Expansion | None = None,
    *,
    variadic: bool = False,
    differentiable: bool = True,
    by_rule: bool = True,
    known_type: KnownType | None = None,
) -> Any:
    """Makes a composite of an expansion function, under the function's name.

    Example:
        @composite
        def softplus(x: Node) -> Node:
            return log1p(exp(x))
    """

    def wrap(expansion: Expansion) -> Composite:
        name = expansion.__name__
        return Composite(
            name, expansion, variadic, differentiable, by_rule=by_rule, known_type=known_type
        )

    return wrap if function is None else wrap(function)


class Signature:
    """A composite with fixed attributes and input types, and the template of nodes it expands to.

    `inputs` are the placeholder nodes of the template, `outputs` its results followed by the
    interior nodes that gradients request (`output_index` appends them); `types` are the types of
    the outputs. `id` is a small integer that represents the signature in cache keys.

    With `by_rule`, the types come from a `rule` of the structure if one admits the numbers. The
    template is then made on demand; functions in `interior` append what gradients have requested
    through the rule.
    """

    __slots__ = (
        "id",
        "composite",
        "attributes",
        "input_types",
        "types",
        "result_count",
        "differentiable",
        "device",
        "can_fail",
        "gradients",
        "batched",
        "rule",
        "interior",
        "_ruled",
        "_inputs",
        "_outputs",
        "_structure",
        "__weakref__",
    )
    types: list[TensorType]
    result_count: int
    differentiable: bool
    can_fail: bool
    _ids = itertools.count(1)

    def __init__(
        self,
        composite: Composite,
        input_types: tuple[TensorType | None, ...],
        attributes: tuple[Any, ...],
        by_rule: bool = False,
    ) -> None:
        self.composite = composite
        self.attributes = attributes
        self.input_types = input_types
        self.device = _common_device(composite.name, self._present())
        self.gradients: dict[tuple, Any] = {}
        self.batched: dict[tuple, Composite] = {}
        self.rule: ShapeRule | None = None
        self.interior: list[Callable[[], object]] = []
        self._ruled: tuple[object, list[TensorType] | None] = None, None
        self._inputs: list[Node] = []
        self._outputs: list[Node] | None = None
        self._structure: tuple[Structure, tuple[float, ...]] | None = None
        self.id = next(Signature._ids)
        rules = self.structure.rules if by_rule else None
        found = None if rules is None else rules.found_for(self)
        known = composite.known_type and composite.known_type(input_types, *attributes)
        if known:
            self.types, self.result_count, self.can_fail = [known], 1, False
            self.differentiable = composite.differentiable and known.differentiable
        elif found is None:
            self._expand()
        else:
            self.rule, types = found
            self._ruled = self.rule.state, types
            like = self.rule.template
            self.result_count = like.result_count
            self.types = types[: self.result_count]
            self.differentiable, self.can_fail = like.differentiable, like.can_fail

    @property
    def dimensions(self) -> set[int]:
        """The places of the attributes that are dimensions, which never become symbols."""
        inputs = 1 if self.composite.variadic else len(self.input_types)
        return {place - inputs for place in self.composite.dimensions}

    @property
    def inputs(self) -> list[Node]:
        """The placeholder nodes of the template."""
        self._template()
        return self._inputs

    @property
    def outputs(self) -> list[Node]:
        """The results of the template, and the interior nodes that gradients request."""
        return self._template()

    def types_by_rule(self) -> list[TensorType] | None:
        """The types of all outputs of the rule's template; None if it no longer admits the numbers.

        They are computed again if gradients have requested more from the rule in the meantime.
        """
        assert self.rule is not None
        state = self.rule.state
        if self._ruled[0] != state:
            self._ruled = state, self.rule.types_for(self.numbers)
        return self._ruled[1]

    def _present(self) -> list[TensorType]:
        return [kind for kind in self.input_types if kind is not None]

    def _template(self) -> list[Node]:
        """The outputs of the template; checks them against the rule, if the types came from one."""
        if self._outputs is None:
            said, could_fail = (self.types, self.differentiable), self.can_fail
            self._expand()
            for append in self.interior:
                append()
            # From here on, gradients are derived from the template.
            self.rule = None
            # An index in bounds for these numbers is not necessarily provable for all numbers.
            if said != (self.types, self.differentiable) or self.can_fail > could_fail:
                self._outputs = None
                raise InternalError(
                    f"{self} differs from what its rule says",
                    fix="set METAOP_SIZES=exact, and report this",
                )
            self.can_fail = could_fail
        assert self._outputs is not None
        return self._outputs

    def _expand(self) -> None:
        self._inputs = [
            input_node(k, kind.shape, kind.dtype) for k, kind in enumerate(self._present())
        ]
        nodes = iter(self._inputs)
        arguments: tuple[Any, ...] = tuple(
            None if kind is None else next(nodes) for kind in self.input_types
        )
        if self.composite.variadic:
            arguments = (arguments,)
        results = self.composite.expansion(*arguments, *self.attributes)
        self._outputs = [results] if isinstance(results, Node) else list(results)
        self.result_count = len(self._outputs)
        self.types = [self._type(node) for node in self._outputs]
        self.differentiable = self.composite.differentiable and any(
            kind.differentiable for kind in self.types
        )
        # Some values are checked when the kernel runs; the error must name the user's line.
        self.can_fail = any(node.op.can_fail(node.inputs) for node in topological(self._outputs))

    @property
    def structure(self) -> Structure:
        """What the signature shares with those that differ from it in numbers alone."""
        return self._parted()[0]

    @property
    def numbers(self) -> tuple[float, ...]:
        """The numbers that are not in the structure, in order."""
        return self._parted()[1]

    def _parted(self) -> tuple[Structure, tuple[float, ...]]:
        if self._structure is None:
            self._structure = structure_of(self)
        return self._structure

    def _type(self, node: Node) -> TensorType:
        return TensorType(node.shape, node.dtype, self.device)

    def output_index(self, node: Node) -> int:
        """The index of a template node among the outputs; a new one is appended."""
        outputs = self.outputs
        for position, output in enumerate(outputs):
            if output is node:
                return position
        outputs.append(node)
        self.types.append(self._type(node))
        return len(outputs) - 1

    def instantiate(self, inputs: Sequence[Node]) -> list[Node]:
        """The outputs of the template with its placeholders replaced by `inputs`."""
        return rebuild(self.outputs, dict(zip(self.inputs, inputs)))

    def __repr__(self) -> str:
        inputs = ", ".join("none" if kind is None else repr(kind) for kind in self.input_types)
        attributes = "".join(f", {value!r}" for value in self.attributes)
        return f"{self.composite.name}({inputs}{attributes})"


def _common_device(name: str, types: Sequence[TensorType]) -> Device:
    devices = {kind.device for kind in types if kind.shape != ()}
    if len(devices) > 1:
        listed = " and ".join(sorted(map(str, devices)))
        raise DeviceError(
            f"{name}: operands are on {listed}", fix="move them to one device with .to(device)"
        )
    if devices:
        return devices.pop()
    return types[0].device if types else CPU
