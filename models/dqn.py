"""DQN: deep Q-learning with a replay memory and a target network.

After V. Mnih and others, "Human-level control through deep reinforcement learning", 2015, with the
targets of H. van Hasselt, A. Guez, D. Silver, "Deep reinforcement learning with double Q-learning",
2016. The demonstration is a grid world with pits. On the cart pole it reaches returns of 98 to 223
only after 40,000 environment steps; PPO solves it.

    python -m models.dqn --steps 1000 --world grid_world
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np

import metaop
from metaop import nn
from metaop.nn import functional as F

from .demonstration import Checkpoint, parse_options, train, update
from .environments import World, mean_return, world_of


class QNetwork(nn.Sequential):
    """Observations (batch, inputs) to action values Q (batch, actions)."""

    def __init__(self, inputs: int, actions: int, width: int = 64) -> None:
        super().__init__(
            nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
            nn.Linear(width, actions),
        )  # fmt: skip


class ReplayMemory:
    """The last `size` transitions: observation, action, reward, next observation, end."""

    def __init__(self, size: int, inputs: int) -> None:
        self.count = 0
        shapes = {"seen": (inputs,), "actions": (), "rewards": (), "after": (inputs,), "ended": ()}
        self.rows = {name: np.zeros((size, *shape), np.float32) for name, shape in shapes.items()}
        self.rows["actions"] = self.rows["actions"].astype(np.int64)

    def add(self, **steps: np.ndarray) -> None:
        """Stores transitions (count, …) in place of the oldest."""
        size, count = len(self.rows["ended"]), len(steps["ended"])
        places = (self.count + np.arange(count)) % size
        for name, values in steps.items():
            self.rows[name][places] = values
        self.count += count

    def draw(self, count: int, random: np.random.Generator) -> list[metaop.Tensor]:
        """`count` random transitions, as a list of tensors (count, …)."""
        chosen = random.integers(0, min(self.count, len(self.rows["ended"])), count)
        return [metaop.from_numpy(values[chosen]) for values in self.rows.values()]

    def state_dict(self) -> dict[str, metaop.Tensor]:
        """All stored transitions."""
        rows = {name: metaop.tensor(values) for name, values in self.rows.items()}
        return {**rows, "count": metaop.tensor(self.count)}

    def load_state_dict(self, kept: dict[str, metaop.Tensor]) -> None:
        """Restores the transitions."""
        self.rows = {name: np.array(kept[name].numpy()) for name in self.rows}
        self.count = int(kept["count"].item())


def loss_of(
    model: nn.Module, target: nn.Module, seen: metaop.Tensor, actions: metaop.Tensor,
    rewards: metaop.Tensor, after: metaop.Tensor, ended: metaop.Tensor, *, gamma: float = 0.99,
) -> metaop.Tensor:  # fmt: skip
    """The Huber loss of Q(s, a) against the target of double Q-learning.

    The target is the reward plus, unless the episode ended, the discounted value of the best next
    action, which `model` chooses and `target`, an earlier copy of it, evaluates.
    """
    found = model(seen).gather(1, actions.unsqueeze(1)).squeeze(1)
    best = model(after).detach().argmax(1, keepdim=True)
    later = target(after).detach().gather(1, best).squeeze(1)
    return F.smooth_l1_loss(found, rewards + gamma * (1 - ended) * later)


def try_out(
    model: nn.Module, world: World, memory: ReplayMemory, epsilon: float, steps: int = 1
) -> float:
    """Acts ε-greedily and stores the transitions; returns the mean reward."""
    total = 0.0
    for _ in range(steps):
        seen, random = world.seen(), world.random
        with metaop.no_grad():
            best = model(metaop.from_numpy(seen)).argmax(1).numpy()
        other = random.integers(0, world.actions, world.count)
        actions = np.where(random.uniform(size=world.count) < epsilon, other, best)
        _, rewards, ended, _, last = world.step(actions)
        memory.add(seen=seen, actions=actions, rewards=rewards, after=last, ended=ended)
        total += float(rewards.mean()) / steps
    return total


def main(arguments: Sequence[str] | None = None) -> float:
    """Acts and learns in turn; returns the mean return of the greedy policy."""
    options = parse_options(
        __doc__, arguments, steps=1000, batch_size=128, lr=3e-3,
        world=("grid_world", "cart_pole"), worlds=8, memory=10_000, width=64, every=50,
    )  # fmt: skip
    world = world_of(options.world, options.worlds, options.seed)
    model = QNetwork(world.inputs, world.actions, options.width)
    target = copy.deepcopy(model)
    memory = ReplayMemory(options.memory, world.inputs)
    optimizer = metaop.optim.Adam(model.parameters(), lr=options.lr)

    def step(number: int) -> dict[str, metaop.Tensor]:
        world.random = np.random.default_rng((options.seed, number))
        if number % options.every == 0:
            target.load_state_dict(model.state_dict())
        epsilon = max(0.05, 1 - number / 300)
        reward = try_out(model, world, memory, epsilon)
        rows = memory.draw(options.batch_size, world.random)
        loss = update(optimizer, loss_of(model, target, *rows))
        return {"loss": loss, "reward": metaop.tensor(reward)}

    checkpoint = Checkpoint(
        options.checkpoint, model=model, target=target, optimizer=optimizer, world=world,
        memory=memory,
    )  # fmt: skip
    train(step, options.steps, "DQN", checkpoint)

    def best(seen: np.ndarray) -> np.ndarray:
        with metaop.no_grad():
            return model(metaop.from_numpy(seen)).argmax(1).numpy()

    found = mean_return(options.world, best, options.seed + 1)
    print(f"mean return {found:.2f} after {options.steps * options.worlds} steps of the world")
    return found


if __name__ == "__main__":
    main()
