import os
import tempfile

import numpy as np
import torch
import torch.nn as nn


class AverageMeter(object):
    """Computes and stores the average and current value"""

    def __init__(self):
        self.sum, self.count = 0, 0

    def update(self, val, n=1):
        self.sum += val * n
        self.count += n


def accuracy(output, target, topk=(1,)):
    """Computes the precision@k for the specified values of k"""
    maxk = max(topk)
    batch_size = target.size(0)
    _, pred = output.topk(maxk, 1, True, True)
    pred = pred.t()
    correct = pred.eq(target.view(1, -1).expand_as(pred))
    return [correct[:k].reshape(-1).float().sum(0).mul_(100.0 / batch_size) for k in topk]


def build():
    return nn.Sequential(nn.Linear(5, 6), nn.Softplus(), nn.Linear(6, 4))


def train(model, steps):
    # the loop saves itself, starts anew, and goes on
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
    criterion = nn.CrossEntropyLoss().cuda() if torch.cuda.is_available() else nn.CrossEntropyLoss()
    r = np.random.RandomState(39)
    losses, top1 = [], AverageMeter()
    with tempfile.TemporaryDirectory() as folder:
        filename = os.path.join(folder, 'checkpoint.pth.tar')
        for epoch in range(steps):
            x, y = torch.Tensor(r.randn(6, 5)), torch.LongTensor(r.randint(0, 4, 6))
            output = model(x)
            loss = criterion(output, y)
            prec1, prec3 = accuracy(output.data, y, topk=(1, 3))
            top1.update(prec1.item(), x.size(0))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            torch.save({'epoch': epoch + 1, 'state_dict': model.state_dict(), 'optimizer': optimizer.state_dict()}, filename)
            checkpoint = torch.load(filename, map_location=lambda storage, loc: storage)
            model.load_state_dict(checkpoint['state_dict'])
            optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
            optimizer.load_state_dict(checkpoint['optimizer'])
    return losses + [top1.sum / top1.count]
