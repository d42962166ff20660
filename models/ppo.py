"""PPO: learns to act by trying, and changes what it does by a little at a time.

After J. Schulman and others, "Proximal policy optimization algorithms", 2017, with advantages after
"High-dimensional continuous control using generalized advantage estimation", 2015. It learns to
keep a pole upright, or to walk through a grid with pits.

    python -m models.ppo --steps 40 --world cart_pole
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

import metaop
from metaop import nn
from metaop.nn import functional as F

from .demonstration import Checkpoint, parse_options, train
from .environments import World, mean_return, world_of


class ActorCritic(nn.Module):
    """What is seen (batch, inputs) to logits of actions (batch, actions) and worths (batch,)."""

    def __init__(self, inputs: int, actions: int, width: int = 64) -> None:
        super().__init__()
        self.actor = self.network(inputs, width, actions, 0.01)
        self.critic = self.network(inputs, width, 1, 1.0)

    @staticmethod
    def network(inputs: int, width: int, outputs: int, gain: float) -> nn.Sequential:
        """Two hidden layers; a small `gain` makes the outputs small at first."""
        layers = [nn.Linear(inputs, width), nn.Linear(width, width), nn.Linear(width, outputs)]
        for layer, size in zip(layers, (2**0.5, 2**0.5, gain)):
            nn.init.orthogonal_(layer.weight, size)
            nn.init.zeros_(layer.bias)
        return nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])

    def forward(self, seen: metaop.Tensor) -> tuple[metaop.Tensor, metaop.Tensor]:
        return self.actor(seen), self.critic(seen).squeeze(1)


def advantages(
    rewards: np.ndarray, worths: np.ndarray, following: np.ndarray, over: np.ndarray,
    discount: float = 0.99, trust: float = 0.95,
) -> np.ndarray:  # fmt: skip
    """How much better each step (steps, worlds) went than the critic had thought.

    `following` is the worth of the state that a step led to, 0 where its episode ended; the sum of
    what was gained beyond the worths goes on, less by discount × trust, until an episode is over.
    """
    gained = rewards + discount * following - worths
    found, later = np.zeros_like(gained), np.zeros_like(gained[0])
    for number in reversed(range(len(gained))):
        later = gained[number] + discount * trust * ~over[number] * later
        found[number] = later
    return found


def loss_of(
    logits: metaop.Tensor, worths: metaop.Tensor, actions: metaop.Tensor, before: metaop.Tensor,
    gains: metaop.Tensor, returns: metaop.Tensor, clip: float = 0.2,
) -> metaop.Tensor:  # fmt: skip
    """What makes good actions likelier, worths true, and actions no surer than they have to be.

    `before` are the logarithms of the actions' probabilities when they were tried: where the
    probability has changed by more than `clip` times itself, it is not pulled further.
    """
    chances = logits.log_softmax(1)
    ratio = (chances.gather(1, actions.unsqueeze(1)).squeeze(1) - before).exp()
    least = metaop.minimum(ratio * gains, ratio.clamp(1 - clip, 1 + clip) * gains)
    doubt = -(chances.exp() * chances).sum(1).mean()
    return -least.mean() + 0.5 * F.mse_loss(worths, returns) - 0.01 * doubt


class Rollout(NamedTuple):
    """What was seen and done in some steps of a world: arrays (steps, worlds, …)."""

    seen: np.ndarray
    actions: np.ndarray
    chances: np.ndarray
    gains: np.ndarray
    returns: np.ndarray
    # The sum of all rewards for each episode that came to its end.
    mean_return: float


def act(model: ActorCritic, world: World, length: int) -> Rollout:
    """Acts for so many steps as the model likes; the next rollout goes on from there."""
    steps: list[tuple[np.ndarray, ...]] = []
    seen = world.seen()
    for _ in range(length):
        with metaop.no_grad():
            logits, worths = model(metaop.from_numpy(seen))
            chances = logits.log_softmax(1).numpy()
            # Drawn by Gumbel's noise, which makes the largest a draw by the probabilities.
            actions = (chances + world.random.gumbel(size=chances.shape)).argmax(1)
            after, rewards, ended, cut, last = world.step(actions)
            following = model(metaop.from_numpy(last))[1].numpy() * ~ended
        tried = chances[np.arange(world.count), actions]
        steps.append((seen, actions, tried, rewards, worths.numpy(), following, ended | cut))
        seen = after
    looked, actions, tried, rewards, worth, following, over = map(np.stack, zip(*steps))
    gains = advantages(rewards, worth, following, over).astype(np.float32)
    total = float(rewards.sum() / max(1, over.sum()))
    return Rollout(looked, actions, tried, gains, gains + worth, total)


def main(arguments: Sequence[str] | None = None) -> float:
    """Acts and learns in turn; returns the mean return of episodes with the likeliest actions."""
    options = parse_options(
        __doc__, arguments, steps=40, batch_size=256, lr=2.5e-3, world="cart_pole", worlds=8,
        length=128, epochs=6, width=64,
    )  # fmt: skip
    world = world_of(options.world, options.worlds, options.seed)
    model = ActorCritic(world.inputs, world.actions, options.width)
    optimizer = metaop.optim.Adam(model.parameters(), lr=options.lr, eps=1e-5)

    def step(number: int) -> dict[str, metaop.Tensor]:
        world.random = random = np.random.default_rng((options.seed, number))
        *arrays, mean = act(model, world, options.length)
        rows = [array.reshape(-1, *array.shape[2:]) for array in arrays]
        for _ in range(options.epochs):
            order = random.permutation(len(rows[0]))
            for start in range(0, len(order), options.batch_size):
                chosen = order[start : start + options.batch_size]
                seen, actions, before, gains, returns = (
                    metaop.from_numpy(row[chosen]) for row in rows
                )
                gains = (gains - gains.mean()) / (gains.std() + 1e-8)
                logits, worths = model(seen)
                loss = loss_of(logits, worths, actions, before, gains, returns)
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()
        return {"loss": loss.detach(), "return": metaop.tensor(mean)}

    checkpoint = Checkpoint(options.checkpoint, model=model, optimizer=optimizer, world=world)
    train(step, options.steps, "PPO", checkpoint)

    def likeliest(seen: np.ndarray) -> np.ndarray:
        with metaop.no_grad():
            return model(metaop.from_numpy(seen))[0].argmax(1).numpy()

    found = mean_return(options.world, likeliest, options.seed + 1)
    tried = options.steps * options.length * options.worlds
    print(f"mean return {found:.2f} after {tried} steps of the world")
    return found


if __name__ == "__main__":
    main()
