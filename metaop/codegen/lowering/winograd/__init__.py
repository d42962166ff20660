"""Winograd's method: contractions along windows of three taps with fewer products."""
