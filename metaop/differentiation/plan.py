"""Plans of gradients: how that of a recorded call is recorded, as a composite again.

The gradient of a composite reads the cotangents and the *residuals* of the forward call: its
inputs, its results, and interior nodes that are expensive to compute again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from metaop.differentiation.loops import is_cheap
from metaop.differentiation.saved_values import Residual
from metaop.differentiation.transposition import pullback
from metaop.differentiation.unsummed import rows_of
from metaop.errors import InternalError
from metaop.settings import get
from metaop.unified_graph.composite import Composite, Derivation, Signature
from metaop.unified_graph.node import (
    Constant,
    Index,
    Input,
    Node,
    constant,
    input_node,
    topological,
)
from metaop.unified_graph.rewrite import rebuild
from metaop.unified_graph.symbolic import NotGeneralError

# The outputs that have cotangents, the inputs whose gradients are wanted, and those of them whose
# gradients may stay unsummed.
Asked = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


# The residuals, targets and unsummed gradients of a plan.
Places = tuple[tuple[Residual, ...], tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True)
class GradientPlan:
    """How to record the gradient of a signature.

    `composite` takes the residuals followed by the cotangents; `targets` lists the inputs whose
    gradients it returns, in order (inputs that nothing flows to are missing). Of those that are
    `unsummed` it returns two things, places and values.
    """

    composite: Composite
    residuals: tuple[Residual, ...]
    targets: tuple[int, ...]
    unsummed: tuple[int, ...]


def gradient_plan(
    signature: Signature,
    outputs: tuple[int, ...],
    wanted: tuple[int, ...],
    unsummed: tuple[int, ...] = (),
) -> GradientPlan | None:
    """The plan for the gradients of inputs `wanted` from cotangents of `outputs`; memoised.

    Those of inputs `unsummed` stay so where they are sums of rows.
    """
    key = (outputs, wanted, unsummed)
    if key not in signature.gradients:
        if not _follow_rule(signature, key):
            signature.gradients[key] = _derive(signature, *key)
        if get("METAOP_VERIFY"):
            assert signature.outputs
    plan: GradientPlan | None = signature.gradients[key]
    return plan


def _follow_rule(signature: Signature, key: Asked) -> bool:
    """Whether the rule of a signature tells its gradients `key`, which are entered then.

    So are those that other signatures asked the rule for earlier: further outputs have the same
    numbers for all of them.
    """
    rule = signature.rule
    if rule is None:
        return False
    try:
        gradient_plan(rule.template, *key)
        types = None if rule.has_equal(signature.numbers) else signature.types_by_rule()
    except NotGeneralError:
        types = None
    if types is None:
        signature.rule = None
        return False
    for asked, plan in rule.template.gradients.items():
        if asked not in signature.gradients:
            signature.gradients[asked] = _as_ruled(signature, asked, plan)
            if plan is not None:
                places = [index for kind, index in plan.residuals if kind == "output"]
                count = max([len(signature.types), *(index + 1 for index in places)])
                signature.types += types[len(signature.types) : count]
        if asked == key:
            break
    return True


def _as_ruled(signature: Signature, asked: Asked, plan: GradientPlan | None) -> GradientPlan | None:
    """The gradients of a signature, alike to those in its rule and derived when they are needed."""

    found: list[GradientPlan | None] = []

    def derived() -> GradientPlan | None:
        if not found:
            made = _derive(signature, *asked)
            if (made and _places_of(made)) != (plan and _places_of(plan)):
                raise InternalError(f"the gradient of {signature} is not what its rule says")
            found.append(made)
        return found[0]

    signature.interior.append(derived)
    if plan is None:
        return None

    def expansion(*nodes: Node) -> tuple[Node, ...]:
        return derived().composite.expansion(*nodes)  # type: ignore[union-attr, return-value]

    return _plan(signature, asked, _places_of(plan), expansion)


def _places_of(plan: GradientPlan) -> Places:
    return plan.residuals, plan.targets, plan.unsummed


def _plan(
    signature: Signature, asked: Asked, places: Places, expansion: Callable[..., tuple[Node, ...]]
) -> GradientPlan:
    def again(other: Signature) -> Composite | None:
        plan = gradient_plan(other, *asked)
        return plan.composite if plan is not None and _places_of(plan) == places else None

    derivation = Derivation(signature, ("gradient", *asked, *places), again)
    name = f"{signature.composite.name}.gradient"
    return GradientPlan(Composite(name, expansion, derivation=derivation), *places)


def _derive(
    signature: Signature,
    outputs: tuple[int, ...],
    wanted: tuple[int, ...],
    unsummed: tuple[int, ...],
) -> GradientPlan | None:
    first_slot = len(signature.inputs)
    results = [signature.outputs[k] for k in outputs]
    cotangents = [
        input_node(first_slot + k, node.shape, node.dtype) for k, node in enumerate(results)
    ]
    sources = [signature.inputs[k] for k in wanted]
    gradients = pullback(results, cotangents, sources)
    # A function that is constant nearly everywhere, as rounding is, has the gradient zero. So have
    # operands that are only rounded, as the places of the nearest pixels, and those that the
    # results do not depend on for these shapes, as a convolution of padding.
    for k, node in enumerate(sources):
        if gradients[k] is None and node.dtype.is_differentiable:
            gradients[k] = _zero(node)
    targets = tuple(k for k, gradient in zip(wanted, gradients) if gradient is not None)
    found: list[Node] = []
    apart: list[int] = []
    for k, gradient in zip(wanted, gradients):
        rows = rows_of(gradient) if gradient is not None and k in unsummed else None
        if rows is not None:
            apart.append(k)
            found.extend(rows)
        elif gradient is not None:
            found.append(gradient)
    if not found:
        return None
    residuals = _residuals(signature, found, set(cotangents))
    places = [
        signature.inputs[index] if kind == "input" else signature.outputs[index]
        for kind, index in residuals
    ]

    def expansion(*nodes: Node) -> tuple[Node, ...]:
        return tuple(rebuild(found, dict(zip([*places, *cotangents], nodes))))

    asked = outputs, wanted, unsummed
    return _plan(signature, asked, (residuals, targets, tuple(apart)), expansion)


def _zero(node: Node) -> Node:
    return constant(0, node.dtype, node.shape)


def _residuals(
    signature: Signature, gradients: Sequence[Node], cotangents: set[Node]
) -> tuple[Residual, ...]:
    """Where the backward graph touches the forward one, past all that is cheap to compute again."""
    forward = set(topological(signature.outputs))
    results = signature.outputs[: signature.result_count]
    places: dict[Residual, None] = {}
    seen: set[Node] = set()
    stack = list(gradients)
    while stack:
        node = stack.pop()
        if node in seen or node in cotangents:
            continue
        seen.add(node)
        if isinstance(node.op, Input):
            places["input", signature.inputs.index(node)] = None
        elif node in forward and node in results and not isinstance(node.op, (Constant, Index)):
            places["output", results.index(node)] = None
        elif node in forward and not is_cheap(node):
            places["output", signature.output_index(node)] = None
        else:
            stack.extend(node.inputs)
    return tuple(places)
