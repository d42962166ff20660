"""Training steps, in float32 and in mixed precision, and inference of whole networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.frameworks import Framework
from benchmarks.workload import Prepared, workload

# From the second step on rounding differences grow; the loss after an update must agree so far.
_TOLERANCE, _MIXED_TOLERANCE = 5e-3, 2e-2


def training(
    f: Framework, model: Any, loss_of: Callable[..., Any], optimizer: str = "SGD", **options: Any
) -> Callable[..., Prepared]:
    """Steps of `loss_of(model, *inputs)`, for the inputs that the result is called with.

    Observed is the loss after the first update. SGD has momentum.
    """
    adopted = f.module(model).train()
    _set_dropout(adopted, False)
    if optimizer == "SGD":
        options = {"momentum": 0.9, **options}
    updater = f.optimizer(optimizer, adopted.parameters(), **options)
    compiled = f.function(lambda *inputs: loss_of(adopted, *inputs))

    def prepared(*inputs: Any) -> Prepared:
        def run() -> Any:
            loss = compiled(*inputs)
            updater.zero_grad()
            loss.backward()
            updater.step()
            return loss

        def observe() -> list[Any]:
            after = [compiled(*inputs).detach().reshape(1)]
            f.finish()
            _set_dropout(adopted, True)
            return after

        return Prepared(run, observe)

    return prepared


def _set_dropout(model: Any, active: bool) -> None:
    """Dropout draws differently in each framework: it rests while losses are compared."""
    for module in model.modules():
        if type(module).__name__.startswith("Dropout"):
            module.train(active)


def network(f: Framework, name: str, *sizes: Any, **options: Any) -> Any:
    """A network by module and name, with PyTorch or metaop below it."""
    module, _, made = name.rpartition(".")
    return getattr(f.load(module), made)(*sizes, **options)


def gpt_of_tokens(f: Framework) -> Any:
    """Logits of 4096 tokens, positions of all sequences behind each other."""
    return f.nn.Sequential(network(f, "models.gpt.GPT", 4096), f.nn.Flatten(0, 1))


def _mobilenet(f: Framework) -> Any:
    return network(f, "models.mobilenet_v2.MobileNetV2")


def _resnet18(f: Framework) -> Any:
    return network(f, "models.resnet.resnet18", 10, "cifar")


def _training(name: str) -> Callable[..., Any]:
    return workload("training", name, tolerance=_TOLERANCE)


def _classifier(
    name: str,
    network: Callable[[Framework], Any],
    shape: Sequence[int],
    classes: int,
    optimizer: str = "SGD",
    lr: float = 0.01,
) -> None:
    """Registers training steps of a classifier of images (or of vectors) by cross-entropy."""

    @_training(name)
    def prepare(f: Framework) -> Prepared:
        def loss_of(model: Any, x: Any, y: Any) -> Any:
            return f.functional.cross_entropy(model(x), y)

        x, labels = f.normal(*shape), f.integers(classes, shape[0])
        steps = training(f, network(f), loss_of, optimizer, lr=lr)
        return steps(f.images(x) if len(shape) == 4 else x, labels)


def of(module: str, *sizes: Any, **options: Any) -> Callable[[Framework], Any]:
    return lambda f: network(f, module, *sizes, **options)


_classifier(
    "MLP 784-512-256-10, batch 128, Adam",
    of("models.mlp.MLP", 784, 512, 256, 10), (128, 784), 10, "Adam", 1e-3,
)  # fmt: skip
_classifier("LeNet, batch 64, Adam", of("models.lenet.LeNet"), (64, 1, 28, 28), 10, "Adam", 1e-3)
_classifier("ResNet-18 CIFAR, batch 32, SGD", _resnet18, (32, 3, 32, 32), 10)
_classifier(
    "ResNet-50 at 224, batch 8, SGD", of("models.resnet.resnet50"), (8, 3, 224, 224), 1000, lr=1e-3
)
_classifier("VGG-16 at 224, batch 2, SGD", of("models.vgg.vgg16"), (2, 3, 224, 224), 1000, lr=1e-3)
_classifier("MobileNetV2 at 96, batch 16, SGD", _mobilenet, (16, 3, 96, 96), 1000)
_classifier(
    "SqueezeNet at 128, batch 16, SGD",
    of("models.squeezenet.SqueezeNet"), (16, 3, 128, 128), 1000,
)  # fmt: skip
_classifier(
    "GoogLeNet at 96, batch 16, SGD", of("models.googlenet.GoogLeNet"), (16, 3, 96, 96), 1000
)
_classifier(
    "ViT-S/16, batch 4, AdamW", of("models.vit.vit_s_16"), (4, 3, 224, 224), 1000, "AdamW", 1e-4
)
_classifier(
    "LSTM 2 x 256, 32 x 64 steps, Adam",
    of("benchmarks.networks.RecurrentClassifier", 128, 256), (32, 64, 128), 10, "Adam", 1e-3,
)  # fmt: skip
_classifier("DGCNN, 4 clouds of 512 points, SGD", of("models.point_cloud.DGCNN"), (4, 3, 512), 40)


def mixed(
    name: str,
    network: Callable[[Framework], Any],
    optimizer: str,
    *inputs: Any,
    group: str = "mixed precision",
) -> None:
    """Registers training steps of a classifier under `amp.autocast`, with operands in bfloat16.

    `inputs` make the data and the labels of a framework.
    """

    @workload(group, f"mixed {name}", tolerance=_MIXED_TOLERANCE)
    def prepare(f: Framework) -> Prepared:
        def loss_of(model: Any, x: Any, y: Any) -> Any:
            with f.library.amp.autocast(f.device, dtype=f.library.bfloat16):
                return f.functional.cross_entropy(model(x), y)

        steps = training(f, network(f), loss_of, optimizer, lr=1e-3)
        return steps(*(make(f) for make in inputs))


mixed(
    "MLP 784-512-256-10, batch 128, Adam",
    of("models.mlp.MLP", 784, 512, 256, 10), "Adam",
    lambda f: f.normal(128, 784), lambda f: f.integers(10, 128),
)  # fmt: skip
mixed(
    "ResNet-18 CIFAR, batch 32, SGD", _resnet18, "SGD",
    lambda f: f.images(f.normal(32, 3, 32, 32)), lambda f: f.integers(10, 32),
)  # fmt: skip
mixed(
    "ResNet-50 at 224, batch 4, SGD", of("models.resnet.resnet50"), "SGD",
    lambda f: f.images(f.normal(4, 3, 224, 224)), lambda f: f.integers(1000, 4),
)  # fmt: skip
mixed(
    "GPT 6 layers of 384, 4 x 256 tokens, AdamW", gpt_of_tokens, "AdamW",
    lambda f: f.integers(4096, 4, 256), lambda f: f.integers(4096, 1024, seed=1),
)  # fmt: skip


@_training("U-Net at 64, batch 8, Adam")
def unet(f: Framework) -> Prepared:
    def loss_of(model: Any, x: Any, y: Any) -> Any:
        return f.functional.cross_entropy(model(x), y)

    images, labels = f.images(f.normal(8, 3, 64, 64)), f.integers(2, 8, 64, 64)
    model = network(f, "models.unet.UNet", width=32, depth=3)
    return training(f, model, loss_of, "Adam", lr=1e-4)(images, labels)


@_training("GPT 6 layers of 384, 4 x 256 tokens, AdamW")
def gpt(f: Framework) -> Prepared:
    def loss_of(model: Any, x: Any, y: Any) -> Any:
        return f.functional.cross_entropy(model(x), y)

    tokens, following = f.integers(4096, 4, 256), f.integers(4096, 1024, seed=1)
    return training(f, gpt_of_tokens(f), loss_of, "AdamW", lr=1e-4)(tokens, following)


@_training("DCGAN generator and discriminator, batch 16, Adam")
def dcgan(f: Framework) -> Prepared:
    networks = f.nn.ModuleList(
        [network(f, "models.dcgan.Generator"), network(f, "models.dcgan.Discriminator")]
    )
    adversarial_loss = f.load("models.adversarial").adversarial_loss

    def loss_of(pair: Any, noise: Any, real: Any) -> Any:
        draw, discriminator = pair
        return adversarial_loss(discriminator(draw(noise)), True) + adversarial_loss(
            discriminator(real), True
        )

    noise, real = f.normal(16, 100), f.images(f.normal(16, 3, 64, 64))
    return training(f, networks, loss_of, "Adam", lr=1e-4)(noise, real)


@_training("WGAN-GP critic, batch 16, Adam (double backward)")
def wgan_gp(f: Framework) -> Prepared:
    critic = network(f, "models.dcgan.Discriminator", 64, 1, 32, False)
    images = f.normal(16, 1, 32, 32), f.normal(16, 1, 32, 32, seed=1)
    mixing = f.tensor(np.random.default_rng(2).random((16, 1, 1, 1), np.float32))
    players = network(f, "models.wgan_gp.WGANGP", f.nn.Identity(), critic, 1)
    turn = f.load("models.adversarial").Turn

    def loss_of(players: Any, real: Any, fake: Any, mixing: Any) -> Any:
        return players.discriminator_loss(turn(real, None, fake, ()), mixing)

    return training(f, players, loss_of, "Adam", lr=1e-4)(*map(f.images, images), mixing)


@_training("CycleGAN generator at 128, batch 1, Adam")
def cyclegan(f: Framework) -> Prepared:
    def loss_of(model: Any, x: Any, y: Any) -> Any:
        return f.functional.l1_loss(model(x), y)

    images = f.images(f.normal(1, 3, 128, 128)), f.images(f.normal(1, 3, 128, 128, seed=1))
    return training(f, network(f, "models.cyclegan.Generator"), loss_of, "Adam", lr=1e-4)(*images)


@_training("GCN of 2 layers, 10k nodes, 100k edges, Adam")
def gcn(f: Framework) -> Prepared:
    nodes, edges = 10_000, 100_000

    def loss_of(model: Any, *inputs: Any) -> Any:
        return f.functional.cross_entropy(model(*inputs[:-1]), inputs[-1])

    source, target = f.integers(nodes, edges), f.integers(nodes, edges, seed=1)
    degree = np.bincount(f.numpy(target), minlength=nodes) + 1
    scale = f.tensor((degree**-0.5).astype(np.float32)[:, None])
    model = network(f, "benchmarks.networks.GCN", 128, 64, 16)
    steps = training(f, model, loss_of, "Adam", lr=1e-3)
    return steps(f.normal(nodes, 128), source, target, scale, f.integers(16, nodes))


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
    _inference(f"GPT, batch {_batch}", gpt_of_tokens, _batch, 256)
    _inference(f"MobileNetV2 at 224, batch {_batch}", _mobilenet, _batch, 3, 224, 224)
    _inference(f"ResNet-18 CIFAR, batch {_batch}", _resnet18, _batch, 3, 32, 32)
    _inference(
        f"ResNet-50 at 224, batch {_batch}", of("models.resnet.resnet50"), _batch, 3, 224, 224
    )


def _token(width: int, layers: int, heads: int, captured: bool) -> None:
    """Registers a GPT's pass of one token with a filled key-value cache."""
    how = ", captured by jit" if captured else ""

    @workload("inference", f"GPT {layers} x {width}, a token from a memory{how}", tolerance=1e-3)
    def prepare(f: Framework) -> Any:
        model = f.module(network(f, "models.gpt.GPT", 4096, 256, width, layers, heads)).eval()
        forward = (f.captured if captured else f.function)(model.forward)
        cache = model.cache(1)
        token, position = f.integers(4096, 1, 1), f.tensor(np.array([200]))

        def run() -> Any:
            with f.library.no_grad():
                return forward(token, position, cache)

        return run


for _sizes in ((128, 4, 4), (384, 6, 6), (768, 12, 12)):
    _token(*_sizes, captured=False)
    _token(*_sizes, captured=True)
