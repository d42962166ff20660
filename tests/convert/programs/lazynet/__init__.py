"""A package whose modules are imported when their names are first used."""

import sys
from typing import TYPE_CHECKING

from .utils import LazyModule, is_torch_available

_structure = {"outputs": ["Output"], "utils": ["is_torch_available"]}
if is_torch_available():
    _structure["networks.encoder"] = ["Encoder", "EncoderConfig"]
    _structure["registry"] = ["ACTIVATIONS", "AutoNetwork"]

if TYPE_CHECKING:
    from .networks.encoder import Encoder, EncoderConfig
    from .outputs import Output
else:
    sys.modules[__name__] = LazyModule(__name__, __file__, _structure, __spec__)
