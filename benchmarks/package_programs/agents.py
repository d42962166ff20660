"""Programs as the documents of stable-baselines3 have them."""

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from numbers_alike import filled, normal
from stable_baselines3 import A2C, DQN, PPO, TD3
from stable_baselines3.common import distributions
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from torch import nn


class _Losses(BaseCallback):
    """What the logger had after each training, and the rewards."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def _on_rollout_start(self):
        values = self.logger.name_to_value
        self.seen.append([float(values[k]) for k in sorted(values) if k.startswith("train/")])

    def _on_step(self):
        self.seen.append(self.locals["rewards"].tolist() if "rewards" in self.locals else [])
        return True


class _Sampled(distributions.CategoricalDistribution):
    """Actions by NumPy's random numbers."""

    generator = np.random.default_rng(5)

    def sample(self):
        probabilities = self.distribution.probs.detach().numpy().astype(float)
        places = _Sampled.generator.random((len(probabilities), 1))
        return torch.from_numpy((probabilities.cumsum(1) < places).sum(1).clip(max=1))


class _Line(gym.Env):
    """A point on a line that is to be moved to the middle."""

    observation_space = spaces.Box(-2.0, 2.0, (3,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=0)
        self.place, self.steps = np.float32(0.8), 0
        return self._seen(), {}

    def _seen(self):
        return np.array([self.place, self.place**2, self.steps / 20], np.float32)

    def step(self, action):
        self.place = np.float32(np.clip(self.place + 0.2 * float(action[0]), -1.4, 1.4))
        self.steps += 1
        return self._seen(), -abs(float(self.place)), False, self.steps >= 20, {}


def _discrete(policy):
    """A policy whose actions are drawn by NumPy, with known weights."""
    head = policy.action_dist
    policy.action_dist = _Sampled(head.action_dim)
    filled(policy)
    return policy


def learns_cartpole_by_ppo():
    """The first program of the documents; then the agent is saved, loaded and evaluated."""
    _Sampled.generator = np.random.default_rng(5)
    model = PPO(
        "MlpPolicy", "CartPole-v1", n_steps=64, batch_size=32, n_epochs=3, seed=0, device="cpu"
    )
    _discrete(model.policy)
    losses = _Losses()
    model.learn(total_timesteps=256, callback=losses)
    model.save("agent")
    loaded = PPO.load("agent", device="cpu")
    mean, spread = evaluate_policy(loaded, model.get_env(), n_eval_episodes=2, warn=False)
    return [losses.seen, list(loaded.policy.parameters()), mean, spread]


def learns_cartpole_by_a2c():
    """Several environments, normalised rewards, RMSprop, a network of one's own."""

    class Features(BaseFeaturesExtractor):
        def __init__(self, observation_space):
            super().__init__(observation_space, features_dim=8)
            self.net = nn.Sequential(nn.Linear(observation_space.shape[0], 8), nn.ReLU())

        def forward(self, observations):
            return self.net(observations)

    _Sampled.generator = np.random.default_rng(5)
    env = VecNormalize(DummyVecEnv([lambda: gym.make("CartPole-v1")] * 2))
    words = {"features_extractor_class": Features, "net_arch": {"pi": [8], "vf": [8]}}
    model = A2C("MlpPolicy", env, policy_kwargs=words, use_rms_prop=True, seed=0, device="cpu")
    _discrete(model.policy)
    losses = _Losses()
    model.learn(total_timesteps=60, callback=losses)
    return [losses.seen, list(model.policy.parameters()), env.obs_rms.mean]


def learns_cartpole_by_dqn():
    """A memory of steps, a network that follows slowly, and random actions of NumPy."""
    model = DQN(
        "MlpPolicy",
        "CartPole-v1",
        learning_starts=20,
        batch_size=16,
        target_update_interval=30,
        seed=0,
        device="cpu",
        buffer_size=1000,
        policy_kwargs={"net_arch": [16]},
    )
    filled(model.policy)
    losses = _Losses()
    model.learn(total_timesteps=120, callback=losses)
    model.save("agent")
    model.save_replay_buffer("memory")
    loaded = DQN.load("agent", env=model.get_env())
    loaded.load_replay_buffer("memory")
    places = loaded.replay_buffer.observations[:120].ravel().tolist()
    return [losses.seen, list(loaded.policy.parameters()), places]


def learns_a_line_by_td3():
    """Two critics and an actor that is trained every second step."""
    model = TD3(
        "MlpPolicy",
        _Line(),
        learning_starts=20,
        batch_size=16,
        buffer_size=1000,
        seed=0,
        device="cpu",
        policy_kwargs={"net_arch": [16, 16]},
        target_policy_noise=0.0,
    )
    filled(model.policy)
    losses = _Losses()
    model.learn(total_timesteps=60, callback=losses)
    return [
        losses.seen,
        list(model.policy.parameters()),
        model.predict(np.ones((2, 3)), deterministic=True)[0],
    ]


def scores_actions_by_every_distribution():
    """Densities, entropies and most likely actions, with gradients."""
    made = []
    for space, size in (
        (spaces.Box(-1, 1, (2,)), 2),
        (spaces.Discrete(3), 3),
        (spaces.MultiDiscrete([2, 3]), 5),
        (spaces.MultiBinary(4), 4),
    ):
        head = distributions.make_proba_distribution(space)
        mean = normal(5, size).requires_grad_()
        words = (torch.zeros(2) - 0.5,) if isinstance(space, spaces.Box) else ()
        head = head.proba_distribution(mean, *words)
        action = head.mode()
        score = head.log_prob(action)
        score.sum().backward()
        made.append([action, score, head.entropy(), mean.grad])
    squashed = distributions.SquashedDiagGaussianDistribution(2)
    squashed.proba_distribution(normal(5, 2), torch.zeros(2))
    made.append(squashed.log_prob(torch.tanh(normal(5, 2, seed=3))))
    return made


def explores_by_the_state():
    """Noise that depends on the state (gSDE), with a matrix of known numbers."""
    noise = distributions.StateDependentNoiseDistribution(
        2, learn_features=True, squash_output=True
    )
    net, log_std = noise.proba_distribution_net(latent_dim=4)
    noise.exploration_mat = normal(4, 2)
    noise.exploration_matrices = normal(3, 4, 2)
    filled(net)
    noise.proba_distribution(net(normal(3, 4)), log_std, normal(3, 4))
    action = torch.tanh(normal(3, 2))
    score = noise.log_prob(action)
    score.sum().backward()
    return [score, log_std.grad, noise.get_noise(normal(3, 4)), noise.mode()]
