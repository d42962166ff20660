import numpy as np
import torch
from torch import nn
from torch.distributions import Normal


def layer_init(layer, std=np.sqrt(2), bias_const=0.0):
    torch.nn.init.orthogonal_(layer.weight, std)
    torch.nn.init.constant_(layer.bias, bias_const)
    return layer


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(layer_init(nn.Linear(3, 8)), nn.Tanh(), layer_init(nn.Linear(8, 1), std=1.0))
        self.actor_mean = nn.Sequential(layer_init(nn.Linear(3, 8)), nn.Tanh(), layer_init(nn.Linear(8, 2), std=0.01))
        self.actor_logstd = nn.Parameter(torch.zeros(1, 2))

    def get_action_and_value(self, x, action):
        action_mean = self.actor_mean(x)
        action_logstd = self.actor_logstd.expand_as(action_mean)
        probs = Normal(action_mean, torch.exp(action_logstd))
        return probs.log_prob(action).sum(1), probs.entropy().sum(1), self.critic(x)


def build():
    return Agent()


def train(agent, steps):
    optimizer = torch.optim.Adam(agent.parameters(), lr=3e-3, eps=1e-5)
    r = np.random.RandomState(27)
    make = lambda *shape: torch.tensor(r.randn(*shape), dtype=torch.float32)
    losses = []
    for update in range(steps):
        obs, actions, advantages, returns = make(6, 3), make(6, 2), make(6), make(6)
        with torch.no_grad():
            logprobs, _, values = agent.get_action_and_value(obs, actions)
            logprobs = logprobs + 0.1
        newlogprob, entropy, newvalue = agent.get_action_and_value(obs, actions)
        logratio = newlogprob - logprobs
        ratio = logratio.exp()
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        # Policy loss
        pg_loss1 = -advantages * ratio
        pg_loss2 = -advantages * torch.clamp(ratio, 1 - 0.2, 1 + 0.2)
        pg_loss = torch.max(pg_loss1, pg_loss2).mean()
        v_loss = 0.5 * ((newvalue.view(-1) - returns) ** 2).mean()
        loss = pg_loss - 0.01 * entropy.mean() + v_loss * 0.5
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
        optimizer.step()
        losses.append(loss.item())
    return losses
