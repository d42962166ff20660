import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class BatchRNN(nn.Module):
    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.norm = nn.BatchNorm1d(input_size)
        self.rnn = nn.RNN(input_size, hidden_size, nonlinearity='tanh', bidirectional=True, batch_first=True)

    def forward(self, x):
        self.rnn.flatten_parameters()
        x = self.norm(x.transpose(1, 2)).transpose(1, 2)
        x, _ = self.rnn(x)
        return x.view(x.size(0), x.size(1), 2, -1).sum(2)  # sum of the directions


class Speech(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(4, 6, 3, padding=1), nn.Hardtanh(0, 20, inplace=True))
        self.rnn = BatchRNN(6, 5)
        self.fc = nn.Linear(5, 4)

    def forward(self, x):
        return self.fc(self.rnn(self.conv(x).transpose(1, 2)))


def build():
    return Speech()


def train(model, steps):
    criterion = nn.CTCLoss(blank=0, reduction='mean', zero_infinity=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=3e-2, momentum=0.9, nesterov=True)
    r = np.random.RandomState(31)
    losses = []
    for _ in range(steps):
        x = torch.as_tensor(r.randn(2, 4, 8), dtype=torch.float32)
        targets = torch.tensor([1, 2, 3, 1, 1])
        log_probs = F.log_softmax(model(x), dim=-1).transpose(0, 1)
        loss = criterion(log_probs, targets, torch.tensor([8, 7]), torch.tensor([3, 2]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
