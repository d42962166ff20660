"""PPO: an actor-critic method with a clipped policy objective.

After J. Schulman and others, "Proximal policy optimization algorithms", 2017, with advantages after
"High-dimensional continuous control using generalized advantage estimation", 2015. The
demonstration is the cart pole, or a grid world with pits.

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
    """Observations (batch, inputs) to logits (batch, actions) and state values (batch,)."""

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
    rewards: np.ndarray, values: np.ndarray, following: np.ndarray, over: np.ndarray,
    gamma: float = 0.99, lam: float = 0.95,
) -> np.ndarray:  # fmt: skip
    """Generalised advantage estimation (GAE) for all steps (steps, worlds).

    `following` is the value of the next state, 0 where the episode ended. The temporal-difference
    errors are summed with the factor gamma * lam per step until the episode is `over`.
    """
    gained = rewards + gamma * following - values
    found, later = np.zeros_like(gained), np.zeros_like(gained[0])
    for number in reversed(range(len(gained))):
        later = gained[number] + gamma * lam * ~over[number] * later
        found[number] = later
    return found


def loss_of(
    logits: metaop.Tensor, values: metaop.Tensor, actions: metaop.Tensor, before: metaop.Tensor,
    gains: metaop.Tensor, returns: metaop.Tensor, clip: float = 0.2,
) -> metaop.Tensor:  # fmt: skip
    """The clipped policy objective, the value loss and the entropy bonus.

    `before` are the log-probabilities of the actions under the policy that took them. Beyond a
    change of the probability ratio by `clip`, an action has no gradient that increases the change.
    """
    log_probabilities = logits.log_softmax(1)
    ratio = (log_probabilities.gather(1, actions.unsqueeze(1)).squeeze(1) - before).exp()
    least = metaop.minimum(ratio * gains, ratio.clamp(1 - clip, 1 + clip) * gains)
    entropy = -(log_probabilities.exp() * log_probabilities).sum(1).mean()
    return -least.mean() + 0.5 * F.mse_loss(values, returns) - 0.01 * entropy


class Rollout(NamedTuple):
    """Observations, actions and their estimates: arrays (steps, worlds, …)."""

    seen: np.ndarray
    actions: np.ndarray
    log_probabilities: np.ndarray
    gains: np.ndarray
    returns: np.ndarray
    # The sum of all rewards divided by the number of finished episodes.
    mean_return: float


def act(model: ActorCritic, world: World, length: int) -> Rollout:
    """Acts for `length` steps by the policy; the next rollout continues from there."""
    steps: list[tuple[np.ndarray, ...]] = []
    seen = world.seen()
    for _ in range(length):
        with metaop.no_grad():
            logits, values = model(metaop.from_numpy(seen))
            log_probabilities = logits.log_softmax(1).numpy()
            # The Gumbel-max trick samples from the softmax.
            actions = (
                log_probabilities + world.random.gumbel(size=log_probabilities.shape)
            ).argmax(1)
            after, rewards, ended, cut, last = world.step(actions)
            following = model(metaop.from_numpy(last))[1].numpy() * ~ended
        tried = log_probabilities[np.arange(world.count), actions]
        steps.append((seen, actions, tried, rewards, values.numpy(), following, ended | cut))
        seen = after
    looked, actions, tried, rewards, worth, following, over = map(np.stack, zip(*steps))
    gains = advantages(rewards, worth, following, over).astype(np.float32)
    total = float(rewards.sum() / max(1, over.sum()))
    return Rollout(looked, actions, tried, gains, gains + worth, total)


def main(arguments: Sequence[str] | None = None) -> float:
    """Acts and learns in turn; returns the mean return of the greedy policy."""
    options = parse_options(
        __doc__, arguments, steps=40, batch_size=256, lr=2.5e-3,
        world=("cart_pole", "grid_world"), worlds=8, length=128, epochs=6, width=64,
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
                logits, values = model(seen)
                loss = loss_of(logits, values, actions, before, gains, returns)
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
