"""The low-level IR: what is equal, and what is not."""

from __future__ import annotations

from metaop.codegen.nest import ir

_INDEX = ir.Sum(((ir.LoopIndex("p"), 1),), 0)


def test_different_forms_with_equal_fields_differ() -> None:
    pairs = (
        (ir.QuotientIndex(_INDEX, 7), ir.RemainderIndex(_INDEX, 7)),
        (ir.LoopIndex("p"), ir.ValueIndex("p")),
        (ir.InBounds(_INDEX, 7), ir.MultipleOf(_INDEX, 7)),
        (ir.Let("v", ir.Name("x", None)), ir.Accumulate("v", ir.Name("x", None))),  # type: ignore
    )
    for left, right in pairs:
        assert left != right
        assert len({left, right, left._replace()}) == 2
        assert ir.Sum(((left, 1),), 0) != ir.Sum(((right, 1),), 0)  # type: ignore[arg-type]
