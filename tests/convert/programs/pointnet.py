from __future__ import print_function
import torch
import torch.nn as nn
import torch.nn.parallel
import torch.utils.data
from torch.autograd import Variable
import numpy as np
import torch.nn.functional as F


class STN3d(nn.Module):
    def __init__(self):
        super(STN3d, self).__init__()
        self.conv1 = torch.nn.Conv1d(3, 8, 1)
        self.conv2 = torch.nn.Conv1d(8, 16, 1)
        self.fc1 = nn.Linear(16, 8)
        self.fc2 = nn.Linear(8, 9)
        self.bn1 = nn.BatchNorm1d(8)
        self.bn4 = nn.BatchNorm1d(8)

    def forward(self, x):
        batchsize = x.size()[0]
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.conv2(x))
        x = torch.max(x, 2, keepdim=True)[0]
        x = x.view(-1, 16)
        x = F.relu(self.bn4(self.fc1(x)))
        x = self.fc2(x)
        iden = Variable(torch.from_numpy(np.array([1,0,0,0,1,0,0,0,1]).astype(np.float32))).view(1,9).repeat(batchsize,1)
        if x.is_cuda:
            iden = iden.cuda()
        x = x + iden
        return x.view(-1, 3, 3)


class PointNetCls(nn.Module):
    def __init__(self, k=2):
        super(PointNetCls, self).__init__()
        self.stn = STN3d()
        self.conv = nn.Conv1d(3, 16, 1)
        self.fc = nn.Linear(16, k)

    def forward(self, x):
        trans = self.stn(x)
        x = x.transpose(2, 1)
        x = torch.bmm(x, trans)
        x = x.transpose(2, 1)
        x = torch.max(self.conv(x), 2)[0]
        return F.log_softmax(self.fc(x), dim=1), trans


def feature_transform_regularizer(trans):
    d = trans.size()[1]
    I = torch.eye(d)[None, :, :]
    if trans.is_cuda:
        I = I.cuda()
    loss = torch.mean(torch.norm(torch.bmm(trans, trans.transpose(2,1)) - I, dim=(1,2)))
    return loss


def build():
    return PointNetCls()


def train(classifier, steps):
    optimizer = torch.optim.Adam(classifier.parameters(), lr=0.001, betas=(0.9, 0.999))
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=20, gamma=0.5)
    r = np.random.RandomState(16)
    losses = []
    for i in range(steps):
        points = torch.from_numpy(r.randn(4, 7, 3).astype(np.float32))
        target = torch.from_numpy(r.randint(0, 2, (4, 1)))
        target = target[:, 0]
        points = points.transpose(2, 1)
        optimizer.zero_grad()
        classifier = classifier.train()
        pred, trans = classifier(points)
        loss = F.nll_loss(pred, target)
        loss += feature_transform_regularizer(trans) * 0.001
        loss.backward()
        optimizer.step()
        pred_choice = pred.data.max(1)[1]
        correct = pred_choice.eq(target.data).cpu().sum()
        print('[%d] train loss: %f accuracy: %f' % (i, loss.item(), correct.item() / 4.))
        losses.append(loss.item())
        scheduler.step()
    return losses
