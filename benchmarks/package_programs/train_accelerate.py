"""Programs as the documents of accelerate have them."""

import accelerate
import torch
from accelerate import Accelerator, utils
from accelerate.state import AcceleratorState
from numbers_alike import below, classes, filled, normal
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader


def _network():
    return filled(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3)))


def _trained(accelerator, epochs=3):
    utils.set_seed(0)
    model, data = _network(), classes(48)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=10)
    loader = DataLoader(data, batch_size=8)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    losses = []
    for _ in range(epochs):
        for x, y in loader:
            with accelerator.accumulate(model):
                loss = F.cross_entropy(model(x), y)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            losses.append(loss.item())
    return model, losses


def a_loop_with_four_lines_more():
    """The first program of the documents."""
    model, losses = _trained(Accelerator(cpu=True))
    return [losses, list(model.parameters())]


def accumulates_clips_and_schedules():
    """Two batches a step; schedule and optimizer skip the others."""
    model, losses = _trained(Accelerator(cpu=True, gradient_accumulation_steps=2))
    return [losses, list(model.parameters())]


def saves_and_loads_the_state():
    """All of the state in a folder, and the weights of the model as safetensors."""
    accelerator = Accelerator(cpu=True)
    model, losses = _trained(accelerator)
    accelerator.save_state("state")
    filled(model, 9)
    accelerator.load_state("state")
    accelerator.save_model(accelerator.unwrap_model(model), "weights")
    fresh = _network()
    accelerate.load_checkpoint_in_model(fresh, "weights")
    return [losses, list(model.parameters()), fresh(normal(4, 8))]


def evaluates_and_gathers():
    """Values of all batches, the last of them shorter, and early stopping by a trigger."""
    accelerator = Accelerator(cpu=True)
    model, loader = accelerator.prepare(_network(), DataLoader(classes(21), batch_size=8))
    model.eval()
    seen = []
    for x, y in loader:
        with torch.inference_mode():
            out = model(x).argmax(-1)
        right, y = accelerator.gather_for_metrics((out == y, y))
        seen.append([right.float().mean(), y])
        if len(seen) == 2:
            accelerator.set_trigger()
    total = accelerator.reduce(torch.tensor([1.0, 2.0]), reduction="sum")
    padded = accelerator.pad_across_processes(normal(2, 3), dim=1)
    return [seen, accelerator.check_trigger(), total, padded]


def skips_batches_of_an_epoch():
    """A training that was stopped within an epoch, taken up at its third batch."""
    accelerator = Accelerator(cpu=True)
    loader = accelerator.prepare(DataLoader(classes(40), batch_size=8))
    first = [x.sum() for x, _ in accelerator.skip_first_batches(loader, 2)]
    return [first, [x.sum() for x, _ in loader], len(loader)]


def makes_large_models_without_memory():
    """A model of the meta device, where its layers go, and its weights from a folder."""
    with accelerate.init_empty_weights():
        empty = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3))
    places = accelerate.infer_auto_device_map(empty, max_memory={"cpu": 10**6})
    sizes = utils.compute_module_sizes(empty)
    Accelerator(cpu=True).save_model(_network(), "weights")
    loaded = accelerate.load_checkpoint_and_dispatch(empty, "weights", device_map={"": "cpu"})
    return [list(sizes.values()), len(places), loaded(normal(4, 8))]


def finds_a_batch_size_that_fits():
    """A function that is called again with half the batch when the memory does not hold it."""
    tried = []

    @utils.find_executable_batch_size(starting_batch_size=32)
    def train(batch_size):
        tried.append(batch_size)
        if batch_size > 8:
            raise RuntimeError("CUDA out of memory.")
        return batch_size

    return [train(), tried]


def nests_of_tensors():
    """The helpers that go through nests, and what they tell."""
    nest = {"a": normal(4, 3), "b": [below(5, 4, 2), (normal(4),)]}
    parts = utils.slice_tensors(utils.send_to_device(nest, "cpu"), slice(1, 3))
    whole = utils.concatenate([parts, parts])
    return [whole, utils.find_batch_size(whole)]


def low_precision():
    """Contractions in bfloat16; a loss is compared as far as it does not depend on rounding."""
    AcceleratorState._reset_state(True)
    model, losses = _trained(Accelerator(cpu=True, mixed_precision="bf16"), epochs=1)
    kept = [p.dtype == torch.float32 for p in model.parameters()]
    AcceleratorState._reset_state(True)
    return [round(losses[0], 1), len(losses), kept]
