"""Rules for result types, which are derived once for a structure and hold for other numbers too.

A signature whose structure has a rule is expanded only when something needs its nodes. If a program
for any size exists, nothing does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from metaop.errors import InternalError, MetaopError
from metaop.settings import get
from metaop.shortcuts import go_without
from metaop.unified_graph.binding import Binding
from metaop.unified_graph.composite import Signature
from metaop.unified_graph.symbolic import NotGeneralError
from metaop.unified_graph.symbolic_signature import Symbols
from metaop.unified_graph.tensor_type import TensorType

# The most rules per structure: a few thresholds split its numbers into cases. The search for one
# more, or for one where a few were not found, costs as much as expanding, so it gets ever rarer.
_MOST_RULES = 4
# With more signatures of a structure than this, a loop records them: no network has so many layers.
_MANY = 64

Derive = Callable[[Signature], "Sequence[Any] | None"]


class ShapeRule:
    """The result types of all signatures that differ from `template` only in the symbolic numbers.

    Requested gradients may append to the template and add guards.
    """

    def __init__(self, concrete: Signature, *others: Sequence[float]) -> None:
        """Replaces the numbers in which `concrete` differs from any of `others` by symbols.

        Raises NotGeneralError, or an error of the operator, if there is no rule.
        """
        # Real numbers have no guards: with the exponent 2, say, the gradient of a power reads less.
        symbols = Symbols(*others, fixed=True)
        self.template = symbols.alone(concrete)
        self._env, self._expected = symbols.env, symbols.expected
        self._known = -1, -1
        self._derived: dict[Derive, tuple[int, Binding | None]] = {}
        self._differences: tuple[tuple[int, int], Binding] | None = None

    @property
    def state(self) -> tuple[int, int]:
        """How much gradients have requested so far: the counts of guards and template outputs."""
        return len(self._env.guards), len(self.template.types)

    def derived_for(self, derive: Derive, numbers: Sequence[float]) -> Sequence[int] | None:
        """The result of `derive` for a signature with these numbers, found once by symbols.

        Raises NotGeneralError if the result depends on the numbers in a way no symbol expresses.
        """
        guards, binding = self._derived.get(derive, (-1, None))
        if guards != len(self._env.guards):
            found = derive(self.template)
            binding = None if found is None else Binding.of(self._env, self._expected, found)
            self._derived[derive] = len(self._env.guards), binding
        if binding is None:
            return None
        values = binding.values_for(numbers)
        if values is None:
            raise NotGeneralError(f"{self.template} admits no rule for {numbers}")
        return values

    def has_equal(self, numbers: Sequence[float]) -> bool:
        """Whether numbers are equal that the template took to differ, so that its own is simpler.

        The types are the same, but the gradient may read less: it omits a mask that hides nothing.
        """
        env = self._env
        state = len(env.guards), len(env.apart)
        if self._differences is None or self._differences[0] != state:
            values = [value for value in env.apart if not env.is_running(value)]
            self._differences = state, Binding.of(env, self._expected, values)
        found = self._differences[1].values_for(numbers)
        return found is not None and 0 in found

    def types_for(self, numbers: Sequence[float]) -> list[TensorType] | None:
        """The types of the template's outputs for these numbers; None if it does not admit them."""
        types = self.template.types
        state = self.state
        if self._known != state:
            self._known = state
            extents = [extent for kind in types for extent in kind.shape]
            self._binding = Binding.of(self._env, self._expected, extents)
        values = self._binding.values_for(numbers)
        if values is None:
            return None
        found, first = [], 0
        for kind in types:
            end = first + len(kind.shape)
            found.append(TensorType(tuple(values[first:end]), kind.dtype, kind.device))
            first = end
        return found


class Rules:
    """The rules of a structure; numbers that differ from those seen before become symbols.

    The rules that were used last are kept.
    """

    def __init__(self, first: Sequence[float]) -> None:
        self._seen = [first]
        self._rules: deque[ShapeRule] = deque(maxlen=_MOST_RULES)
        self._searches = 0
        # How many signatures are expanded before the next search, and how many will be after it.
        self._wait, self._patience = 0, 1

    def found_for(self, signature: Signature) -> tuple[ShapeRule, list[TensorType]] | None:
        """The rule for a signature without types, and the types; None if there is no rule."""
        numbers = signature.numbers
        if numbers == self._seen[0]:
            return None
        for place, rule in enumerate(self._rules):
            types = rule.types_for(numbers)
            if types is not None:
                if get("METAOP_VERIFY"):
                    _check(signature, rule, types)
                if place:
                    self._rules.remove(rule)
                    self._rules.appendleft(rule)
                return rule, types
        if self._wait:
            self._wait -= 1
            return None
        self._searches += 1
        if self._searches >= _MOST_RULES:
            self._wait, self._patience = self._patience, 2 * self._patience
        # The user's errors are raised here.
        exact = Signature(signature.composite, signature.input_types, signature.attributes)
        try:
            rule = ShapeRule(exact, *self._seen)
            types = rule.types_for(numbers)
        except (NotGeneralError, MetaopError):
            types = None
        except Exception as fault:
            go_without("a rule for shapes", fault)
            types = None
        if types is None or types[: len(exact.types)] != exact.types:
            return None
        self._rules.appendleft(rule)
        self._seen = [*self._seen, numbers][:_MOST_RULES]
        return rule, types


def _check(signature: Signature, rule: ShapeRule, types: list[TensorType]) -> None:
    """Compares a rule with the expansion of the signature."""
    exact = Signature(signature.composite, signature.input_types, signature.attributes)
    like = rule.template
    same = types[: like.result_count] == exact.types and like.differentiable == exact.differentiable
    if not same or exact.can_fail > like.can_fail:
        raise InternalError(f"{exact} differs from what its rule says: {types}, not {exact.types}")


def note(signature: Signature) -> None:
    """Counts a signature that is recorded for the first time."""
    structure = signature.structure
    structure.count += 1
    if structure.count == _MANY:
        learn_rule(signature)


def learn_rule(signature: Signature) -> None:
    """Makes later signatures of the same structure get their types by rule."""
    if signature.structure.rules is None and signature.numbers:
        signature.structure.rules = Rules(signature.numbers)
