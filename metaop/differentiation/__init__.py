"""Differentiation: one transposition rule per family, and the tape of recorded calls."""
