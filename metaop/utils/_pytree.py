"""The tools of trees under the name that programs for PyTorch import, private ones included."""

from metaop.trees import *  # noqa: F403
from metaop.trees import SUPPORTED_NODES as SUPPORTED_NODES
from metaop.trees import __all__ as __all__
from metaop.trees import _dict_flatten_with_keys as _dict_flatten_with_keys
from metaop.trees import _get_node_type as _get_node_type
