"""GPT, BERT and ViT cut up in all the ways that the ranks allow, against one device: see
`examples/dist/three_dimensional.py`, here with fewer layers and sizes that ranks do not divide."""

import sys
from pathlib import Path

import numpy as np

from metaop.distributed import get_rank, get_world_size

sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "dist"))
import three_dimensional as example

example.LAYERS, example.MICRO, example.BATCH, example.WORDS = 2, 2, 12, 41
# Parts of the data, of the layers and of the depth for each model.
WAYS = {
    2: {"gpt": [(1, 1, 2)], "bert": [(1, 2, 1)], "vit": [(2, 1, 1)]},
    4: {"gpt": [(1, 2, 2)], "bert": [(2, 1, 2)], "vit": [(2, 2, 1)]},
}
STEPS = 20
for model, ways in WAYS[get_world_size()].items():
    for way in ways:
        losses = example.parallel(model, *way, STEPS)
        if get_rank() == 0:
            expected = example.single_device(model, STEPS)
            np.testing.assert_allclose(losses, expected, rtol=1e-5, err_msg=f"{model} {way}")
