"""Weights and data that are the same in both libraries."""

import numpy as np
import torch


def normal(*shape, seed=0):
    """Normal numbers."""
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def below(limit, *shape, seed=0):
    """Integers below a limit."""
    return torch.from_numpy(np.random.default_rng(seed).integers(0, limit, shape))


def filled(module, seed=1):
    """A module with small normal numbers as its weights."""
    generator = np.random.default_rng(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            values = 0.3 * generator.standard_normal(tuple(parameter.shape))
            parameter.copy_(torch.from_numpy(values.astype(np.float32)))
    return module


def classes(count, features=8, kinds=3, seed=2):
    """Rows of features, and their classes by a linear rule."""
    x, rule = normal(count, features, seed=seed), normal(features, kinds)
    return torch.utils.data.TensorDataset(x, (x @ rule).argmax(1))
