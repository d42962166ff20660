"""The older name of `metaop.hub`'s downloads."""

from metaop.hub import load_state_dict_from_url as load_url

__all__ = ["load_url"]
