import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def knn(x, k):
    inner = -2*torch.matmul(x.transpose(2, 1), x)
    xx = torch.sum(x**2, dim=1, keepdim=True)
    pairwise_distance = -xx - inner - xx.transpose(2, 1)
    idx = pairwise_distance.topk(k=k, dim=-1)[1]   # (batch_size, num_points, k)
    return idx


def get_graph_feature(x, k=3, idx=None):
    batch_size = x.size(0)
    num_points = x.size(2)
    x = x.view(batch_size, -1, num_points)
    if idx is None:
        idx = knn(x, k=k)   # (batch_size, num_points, k)
    device = torch.device('cpu')
    idx_base = torch.arange(0, batch_size, device=device).view(-1, 1, 1)*num_points
    idx = idx + idx_base
    idx = idx.view(-1)
    _, num_dims, _ = x.size()
    x = x.transpose(2, 1).contiguous()
    feature = x.view(batch_size*num_points, -1)[idx, :]
    feature = feature.view(batch_size, num_points, k, num_dims)
    x = x.view(batch_size, num_points, 1, num_dims).repeat(1, 1, k, 1)
    feature = torch.cat((feature-x, x), dim=3).permute(0, 3, 1, 2).contiguous()
    return feature


def cal_loss(pred, gold, smoothing=True):
    ''' Calculate cross entropy loss, apply label smoothing if needed. '''
    gold = gold.contiguous().view(-1)
    eps = 0.2
    n_class = pred.size(1)
    one_hot = torch.zeros_like(pred).scatter(1, gold.view(-1, 1), 1)
    one_hot = one_hot * (1 - eps) + (1 - one_hot) * eps / (n_class - 1)
    log_prb = F.log_softmax(pred, dim=1)
    return -(one_hot * log_prb).sum(dim=1).mean()


class DGCNN(nn.Module):
    def __init__(self):
        super(DGCNN, self).__init__()
        self.bn1 = nn.BatchNorm2d(8)
        self.conv1 = nn.Sequential(nn.Conv2d(6, 8, kernel_size=1, bias=False),
                                   self.bn1,
                                   nn.LeakyReLU(negative_slope=0.2))
        self.linear = nn.Linear(16, 3)

    def forward(self, x):
        x = self.conv1(get_graph_feature(x)).max(dim=-1, keepdim=False)[0]
        x1 = F.adaptive_max_pool1d(x, 1).view(x.size(0), -1)
        x2 = F.adaptive_avg_pool1d(x, 1).view(x.size(0), -1)
        return self.linear(torch.cat((x1, x2), 1))


def build():
    return DGCNN()


def train(model, steps):
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 5, eta_min=0.001)
    r = np.random.RandomState(17)
    losses = []
    for _ in range(steps):
        data, label = torch.Tensor(r.randn(3, 8, 3)), torch.LongTensor(r.randint(0, 3, 3))
        loss = cal_loss(model(data.permute(0, 2, 1)), label)
        opt.zero_grad()
        loss.backward()
        opt.step()
        scheduler.step()
        losses.append(loss.item())
    return losses
