"""The reindex family: `y[i] = x[m(i)]` where the guards hold, else a fill value."""

from metaop.reindex.meta_op import Reindex, reindex

__all__ = ["Reindex", "reindex"]
