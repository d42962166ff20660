"""The reduce family (reindex-reduce): `y[m(i)] = y[m(i)] ⊕ x[i]` where the guards hold."""

from metaop.reduce.meta_op import Reduce, reduce_axes, reduce_with_map

__all__ = ["Reduce", "reduce_axes", "reduce_with_map"]
