"""The older names of the profiler."""

from metaop.profiler import profile, record_function

__all__ = ["profile", "record_function"]
