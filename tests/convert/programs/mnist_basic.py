from __future__ import print_function
import argparse
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.optim.lr_scheduler import StepLR


class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()
        self.conv1 = nn.Conv2d(1, 4, 3, 1)
        self.conv2 = nn.Conv2d(4, 8, 3, 1)
        self.dropout1 = nn.Dropout(0.0)
        self.fc1 = nn.Linear(32, 16)
        self.fc2 = nn.Linear(16, 10)

    def forward(self, x):
        x = self.conv1(x)
        x = F.relu(x)
        x = self.conv2(x)
        x = F.relu(x)
        x = F.max_pool2d(x, 2)
        x = self.dropout1(x)
        x = torch.flatten(x, 1)
        x = self.fc1(x)
        x = F.relu(x)
        x = self.fc2(x)
        output = F.log_softmax(x, dim=1)
        return output


def train_epoch(args, model, device, data, optimizer, epoch):
    model.train()
    losses = []
    for batch_idx, (data, target) in enumerate(data):
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        output = model(data)
        loss = F.nll_loss(output, target)
        loss.backward()
        optimizer.step()
        if batch_idx % args.log_interval == 0:
            print('Train Epoch: {} Loss: {:.6f}'.format(epoch, loss.item()))
        losses.append(loss.item())
    return losses


def test(model, device, data):
    model.eval()
    test_loss, correct = 0, 0
    with torch.no_grad():
        for data, target in data:
            output = model(data.to(device))
            test_loss += F.nll_loss(output, target, reduction='sum').item()  # sum up batch loss
            pred = output.argmax(dim=1, keepdim=True)  # get the index of the max log-probability
            correct += pred.eq(target.view_as(pred)).sum().item()
    return test_loss + correct


def build():
    return Net()


def train(model, steps):
    parser = argparse.ArgumentParser(description='PyTorch MNIST Example')
    parser.add_argument('--log-interval', type=int, default=10, metavar='N')
    args = parser.parse_args([])
    use_cuda = torch.cuda.is_available()
    torch.manual_seed(1)
    device = torch.device("cuda" if use_cuda else "cpu")
    r = np.random.RandomState(7)
    data = [(torch.tensor(r.randn(3, 1, 8, 8).astype('float32')), torch.tensor(r.randint(10, size=3))) for _ in range(steps)]
    optimizer = optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
    losses = train_epoch(args, model, device, data, optimizer, 1)
    scheduler.step()
    return losses + [test(model, device, data)]


if __name__ == '__main__':
    train(build(), 3)
