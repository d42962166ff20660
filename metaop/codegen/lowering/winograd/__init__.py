"""Winograd's method: contractions along windows of three or five taps with fewer products."""
