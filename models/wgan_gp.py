"""WGAN-GP: adversarial training with a critic whose slope is held at one.

After I. Gulrajani and others, "Improved training of Wasserstein GANs", 2017. The penalty is a
function of a gradient, so its own gradient is of second order.

    python -m models.wgan_gp --steps 100
"""

from __future__ import annotations

from collections.abc import Sequence

import metaop
from metaop import nn

from .dcgan import Discriminator, Generator
from .demonstration import digit_images, parse_options, random_batches, train, update


def gradient_penalty(
    critic: nn.Module, real: metaop.Tensor, false: metaop.Tensor, mixing: metaop.Tensor
) -> metaop.Tensor:
    """How far the slope of the critic is from 1 between real and false images.

    `mixing` (batch, 1, 1, 1) in [0, 1] chooses the points.
    """
    between = (mixing * real + (1 - mixing) * false).detach().requires_grad_()
    (slope,) = metaop.autograd.grad(critic(between).sum(), between, create_graph=True)
    return ((slope.flatten(1).norm(2, dim=1) - 1) ** 2).mean()


def critic_loss(
    critic: nn.Module,
    real: metaop.Tensor,
    false: metaop.Tensor,
    mixing: metaop.Tensor,
    penalty: float = 10.0,
) -> metaop.Tensor:
    """The negative distance of the two distributions, plus the penalty."""
    distance = critic(real).mean() - critic(false).mean()
    return penalty * gradient_penalty(critic, real, false, mixing) - distance


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Learns to draw digits of 16 × 16 pixels; returns the losses of the critic."""
    options = parse_options(
        __doc__, arguments, steps=100, batch_size=32, lr=5e-4, latent=32, width=16,
        critic_steps=3, out="",
    )  # fmt: skip
    images, _ = digit_images(16, channels=1)
    batches = random_batches(images, size=options.batch_size, seed=options.seed)
    generator = Generator(options.latent, options.width, 1, 16)
    # Batch normalisation would make the slope at one image depend on the others.
    critic = Discriminator(options.width, 1, 16, batch_norm=False)
    betas = (0.0, 0.9)
    draw = metaop.optim.Adam(generator.parameters(), lr=options.lr, betas=betas)
    criticise = metaop.optim.Adam(critic.parameters(), lr=options.lr, betas=betas)

    def step(number: int) -> dict[str, metaop.Tensor]:
        for _ in range(options.critic_steps):
            (real,) = next(batches)
            with metaop.no_grad():
                false = generator(metaop.randn(len(real), options.latent, 1, 1))
            mixing = metaop.rand(len(real), 1, 1, 1)
            loss = update(criticise, critic_loss(critic, real, false, mixing))
        noise = metaop.randn(options.batch_size, options.latent, 1, 1)
        return {"critic": loss, "generator": update(draw, -critic(generator(noise)).mean())}

    history = train(step, options.steps, "WGAN-GP")
    if options.out:
        with metaop.no_grad():
            drawn = generator.eval()(metaop.randn(64, options.latent, 1, 1))
        metaop.vision.utils.save_image(drawn, options.out, normalize=True)
    return history["critic"]


if __name__ == "__main__":
    main()
