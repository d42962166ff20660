import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class GraphAttentionLayer(nn.Module):
    def __init__(self, in_features, out_features, alpha, concat=True):
        super().__init__()
        self.concat = concat
        self.W = nn.Parameter(torch.empty(size=(in_features, out_features)))
        nn.init.xavier_uniform_(self.W.data, gain=1.414)
        self.a = nn.Parameter(torch.empty(size=(2 * out_features, 1)))
        nn.init.xavier_uniform_(self.a.data, gain=1.414)
        self.leakyrelu = nn.LeakyReLU(alpha)
        self.out_features = out_features

    def forward(self, h, adj):
        Wh = torch.mm(h, self.W)  # h.shape: (N, in_features)
        e = self._prepare_attentional_mechanism_input(Wh)
        zero_vec = -9e15 * torch.ones_like(e)
        attention = torch.where(adj > 0, e, zero_vec)
        attention = F.softmax(attention, dim=1)
        h_prime = torch.matmul(attention, Wh)
        return F.elu(h_prime) if self.concat else h_prime

    def _prepare_attentional_mechanism_input(self, Wh):
        Wh1 = torch.matmul(Wh, self.a[:self.out_features, :])
        Wh2 = torch.matmul(Wh, self.a[self.out_features:, :])
        return self.leakyrelu(Wh1 + Wh2.T)  # broadcast add


class GAT(nn.Module):
    def __init__(self):
        super().__init__()
        self.attentions = [GraphAttentionLayer(4, 3, 0.2) for _ in range(2)]
        for i, attention in enumerate(self.attentions):
            self.add_module('attention_{}'.format(i), attention)
        self.out_att = GraphAttentionLayer(6, 2, 0.2, concat=False)

    def forward(self, x, adj):
        x = torch.cat([att(x, adj) for att in self.attentions], dim=1)
        return F.log_softmax(F.elu(self.out_att(x, adj)), dim=1)


def build():
    return GAT()


def train(model, steps):
    r = np.random.RandomState(19)
    x = torch.tensor(r.randn(7, 4), dtype=torch.float32)
    adj = torch.tensor((r.rand(7, 7) > 0.5) | np.eye(7, dtype=bool))
    y = torch.tensor(r.randint(0, 2, 7))
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    losses = []
    for _ in range(steps):
        loss = F.nll_loss(model(x, adj), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses += [loss.item()]
    return losses
