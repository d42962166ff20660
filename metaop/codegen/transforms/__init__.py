"""Transforms: what rewrites or reorders the launches of a program after lowering."""
