"""Records the losses of the programs that use torchvision, with torchvision 0.28.

    python -m tests.convert.record

writes `recorded.json`.
"""

from __future__ import annotations

import json

import numpy as np
import torch

from tests.convert.running import FOLDER, PROGRAMS, STEPS, determined_weights, load_program


def main() -> None:
    record = {}
    for path in PROGRAMS:
        text = path.read_text()
        if "torchvision" not in text:
            continue
        program = load_program(text, path.stem)
        model = program["build"]()
        determined_weights(model, torch.from_numpy)
        losses = np.array(program["train"](model, STEPS), dtype=float)
        record[path.stem] = losses.round(6).tolist()
    (FOLDER.parent / "recorded.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
