"""Training steps and inference of whole networks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.frameworks import Framework
from benchmarks.workload import Prepared, workload

# From the second step on rounding differences grow; the loss after an update must agree so far.
_TOLERANCE = 5e-3


def training(
    f: Framework, model: Any, inputs: Any, labels: Any, optimizer: str = "SGD", **options: Any
) -> Prepared:
    """Steps of a classifier. Observed are the losses before and after the first update."""
    adopted = f.module(model).train()
    _set_dropout(adopted, False)
    updater = f.optimizer(optimizer, adopted.parameters(), **options)

    def loss_of(x: Any, y: Any) -> Any:
        return f.functional.cross_entropy(adopted(x), y)

    compiled = f.function(loss_of)

    def run() -> Any:
        loss = compiled(inputs, labels)
        updater.zero_grad()
        loss.backward()
        updater.step()
        return loss

    def observe() -> list[Any]:
        after = [compiled(inputs, labels).detach().reshape(1)]
        f.finish()
        _set_dropout(adopted, True)
        return after

    return Prepared(run, observe)


def _set_dropout(model: Any, active: bool) -> None:
    """Dropout draws differently in each framework: it rests while losses are compared."""
    for module in model.modules():
        if type(module).__name__.startswith("Dropout"):
            module.train(active)


def _network(f: Framework, name: str, *sizes: Any) -> Any:
    """A network by module and name, with PyTorch or metaop below it."""
    module, _, made = name.rpartition(".")
    return getattr(f.load(module), made)(*sizes)


def _resnet18(f: Framework) -> Any:
    return _network(f, "models.resnet.resnet18", 10, "cifar")


def _gpt(f: Framework) -> Any:
    """Logits of 4096 tokens, positions of all sequences behind each other."""
    return f.nn.Sequential(_network(f, "models.gpt.GPT", 4096), f.nn.Flatten(0, 1))


def _mobilenet(f: Framework) -> Any:
    return _network(f, "benchmarks.networks.MobileNetV2")


def _training(name: str) -> Callable[..., Any]:
    return workload("training", name, tolerance=_TOLERANCE)


@_training("MLP 784-512-256-10, batch 128, Adam")
def mlp(f: Framework) -> Prepared:
    model = _network(f, "models.mlp.MLP", 784, 512, 256, 10)
    return training(f, model, f.normal(128, 784), f.integers(10, 128), "Adam", lr=1e-3)


@_training("LeNet, batch 64, Adam")
def lenet(f: Framework) -> Prepared:
    images, labels = f.images(f.normal(64, 1, 28, 28)), f.integers(10, 64)
    return training(f, _network(f, "models.lenet.LeNet"), images, labels, "Adam", lr=1e-3)


@_training("ResNet-18 CIFAR, batch 32, SGD")
def resnet18(f: Framework) -> Prepared:
    images, labels = f.images(f.normal(32, 3, 32, 32)), f.integers(10, 32)
    return training(f, _resnet18(f), images, labels, lr=0.01, momentum=0.9)


@_training("MobileNetV2 at 96, batch 16, SGD")
def mobilenet(f: Framework) -> Prepared:
    images, labels = f.images(f.normal(16, 3, 96, 96)), f.integers(1000, 16)
    return training(f, _mobilenet(f), images, labels, lr=0.01, momentum=0.9)


@_training("U-Net at 64, batch 8, Adam")
def unet(f: Framework) -> Prepared:
    images, labels = f.images(f.normal(8, 3, 64, 64)), f.integers(2, 8, 64, 64)
    return training(f, _network(f, "benchmarks.networks.UNet"), images, labels, "Adam", lr=1e-4)


@_training("GPT 6 layers of 384, 4 x 256 tokens, AdamW")
def gpt(f: Framework) -> Prepared:
    tokens, following = f.integers(4096, 4, 256), f.integers(4096, 1024, seed=1)
    return training(f, _gpt(f), tokens, following, "AdamW", lr=1e-4)


@_training("ViT-S/16 of 4 layers, batch 4, AdamW")
def vit(f: Framework) -> Prepared:
    images, labels = f.images(f.normal(4, 3, 224, 224)), f.integers(1000, 4)
    return training(
        f, _network(f, "benchmarks.networks.ViT", 384, 6, 4), images, labels, "AdamW", lr=1e-4
    )


@_training("LSTM 2 x 256, 32 x 64 steps, Adam")
def lstm(f: Framework) -> Prepared:
    model = _network(f, "benchmarks.networks.LSTMClassifier", 128, 256)
    return training(f, model, f.normal(32, 64, 128), f.integers(10, 32), "Adam", lr=1e-3)


@_training("DCGAN generator, batch 16, Adam")
def generator(f: Framework) -> Prepared:
    model = f.module(_network(f, "benchmarks.networks.Generator")).train()
    updater = f.optimizer("Adam", model.parameters(), lr=1e-4)
    noise = f.images(f.normal(16, 100, 1, 1))
    function = f.function(lambda x: (model(x) ** 2).mean())

    def run() -> Any:
        loss = function(noise)
        updater.zero_grad()
        loss.backward()
        updater.step()
        return loss

    return Prepared(run)


def _inference(name: str, network: Callable[[Framework], Any], *shape: int) -> None:
    """Registers a forward pass in evaluation mode without gradients, of tokens or images."""

    @workload("inference", name, tolerance=1e-3)
    def prepare(f: Framework) -> Any:
        model = f.module(network(f)).eval()
        x = f.integers(4096, *shape) if len(shape) == 2 else f.images(f.normal(*shape))
        function = f.function(model)

        def run() -> Any:
            with f.library.no_grad():
                return function(x)

        return run


for _batch in (1, 8):
    _inference(f"GPT, batch {_batch}", _gpt, _batch, 256)
    _inference(f"MobileNetV2 at 224, batch {_batch}", _mobilenet, _batch, 3, 224, 224)
    _inference(f"ResNet-18 CIFAR, batch {_batch}", _resnet18, _batch, 3, 32, 32)
