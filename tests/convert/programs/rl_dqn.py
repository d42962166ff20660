import copy
import random
from collections import deque, namedtuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

Transition = namedtuple('Transition', ('state', 'action', 'next_state', 'reward'))
USE_CUDA = torch.cuda.is_available()


class ReplayMemory(object):
    def __init__(self, capacity):
        self.memory = deque([], maxlen=capacity)

    def push(self, *args):
        """Save a transition"""
        self.memory.append(Transition(*args))

    def sample(self, batch_size):
        return random.Random(0).sample(list(self.memory), batch_size)


class DQN(nn.Module):
    def __init__(self, n_observations=4, n_actions=3):
        super(DQN, self).__init__()
        self.layer1 = nn.Linear(n_observations, 12)
        self.layer2 = nn.Linear(12, n_actions)

    def forward(self, x):
        return self.layer2(F.relu(self.layer1(x)))


def build():
    return DQN()


def train(policy_net, steps):
    target_net = copy.deepcopy(policy_net)
    target_net.load_state_dict(policy_net.state_dict())
    optimizer = torch.optim.AdamW(policy_net.parameters(), lr=1e-2, amsgrad=True)
    memory = ReplayMemory(50)
    r = np.random.RandomState(26)
    losses = []
    for step in range(steps):
        for _ in range(8):
            following = None if r.rand() < 0.3 else torch.tensor(r.randn(1, 4), dtype=torch.float32)
            memory.push(torch.tensor(r.randn(1, 4), dtype=torch.float32), torch.tensor([[r.randint(3)]]), following, torch.tensor([float(r.rand())]))
        batch = Transition(*zip(*memory.sample(6)))
        non_final_mask = torch.tensor(tuple(map(lambda s: s is not None, batch.next_state)), dtype=torch.bool)
        non_final_next_states = torch.cat([s for s in batch.next_state if s is not None])
        # Compute Q(s_t, a)
        state_action_values = policy_net(torch.cat(batch.state)).gather(1, torch.cat(batch.action))
        next_state_values = torch.zeros(6)
        with torch.no_grad():
            next_state_values[non_final_mask] = target_net(non_final_next_states).max(1).values
        expected = next_state_values * 0.99 + torch.cat(batch.reward)
        loss = nn.SmoothL1Loss()(state_action_values, expected.unsqueeze(1))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_value_(policy_net.parameters(), 100)  # In-place gradient clipping
        optimizer.step()
        # Soft update of the target network's weights
        target_net_state_dict, policy_net_state_dict = target_net.state_dict(), policy_net.state_dict()
        for key in policy_net_state_dict:
            target_net_state_dict[key] = policy_net_state_dict[key]*0.05 + target_net_state_dict[key]*0.95
        target_net.load_state_dict(target_net_state_dict)
        losses.append(loss.item())
    return losses
