import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.distributions import Categorical

gamma = 0.99


class Policy(nn.Module):
    def __init__(self):
        super(Policy, self).__init__()
        self.affine1 = nn.Linear(4, 16)
        self.affine2 = nn.Linear(16, 2)
        self.saved_log_probs = []
        self.rewards = []

    def forward(self, x):
        x = F.relu(self.affine1(x))
        return F.softmax(self.affine2(x), dim=1)


def select_action(policy, state, action):
    state = torch.from_numpy(state).float().unsqueeze(0)
    m = Categorical(policy(state))
    policy.saved_log_probs.append(m.log_prob(torch.tensor([action])))
    return m.entropy()


def build():
    return Policy()


def train(policy, steps):
    optimizer = optim.Adam(policy.parameters(), lr=1e-2)
    eps = np.finfo(np.float32).eps.item()
    r = np.random.RandomState(25)
    losses = []
    for _ in range(steps):
        entropy = 0
        for t in range(5):  # Don't infinite loop while learning
            entropy = entropy + select_action(policy, r.randn(4), int(r.randint(2))).mean()
            policy.rewards.append(float(r.rand()))
        R, returns = 0, []
        for reward in policy.rewards[::-1]:
            R = reward + gamma * R
            returns.insert(0, R)
        returns = torch.tensor(returns)
        returns = (returns - returns.mean()) / (returns.std() + eps)
        policy_loss = []
        for log_prob, R in zip(policy.saved_log_probs, returns):
            policy_loss.append(-log_prob * R)
        optimizer.zero_grad()
        policy_loss = torch.cat(policy_loss).sum() - 0.01 * entropy
        policy_loss.backward()
        optimizer.step()
        del policy.rewards[:]
        del policy.saved_log_probs[:]
        losses.append(policy_loss.item())
    return losses
