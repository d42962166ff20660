# A single-shot detection head with hard negative mining
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.autograd import Variable


def point_form(boxes):
    """ Convert prior_boxes to (xmin, ymin, xmax, ymax) """
    return torch.cat((boxes[:, :2] - boxes[:, 2:] / 2,  # xmin, ymin
                      boxes[:, :2] + boxes[:, 2:] / 2), 1)  # xmax, ymax


def intersect(box_a, box_b):
    A, B = box_a.size(0), box_b.size(0)
    max_xy = torch.min(box_a[:, 2:].unsqueeze(1).expand(A, B, 2), box_b[:, 2:].unsqueeze(0).expand(A, B, 2))
    min_xy = torch.max(box_a[:, :2].unsqueeze(1).expand(A, B, 2), box_b[:, :2].unsqueeze(0).expand(A, B, 2))
    inter = torch.clamp((max_xy - min_xy), min=0)
    return inter[:, :, 0] * inter[:, :, 1]


def jaccard(box_a, box_b):
    inter = intersect(box_a, box_b)
    area_a = ((box_a[:, 2]-box_a[:, 0]) * (box_a[:, 3]-box_a[:, 1])).unsqueeze(1).expand_as(inter)
    area_b = ((box_b[:, 2]-box_b[:, 0]) * (box_b[:, 3]-box_b[:, 1])).unsqueeze(0).expand_as(inter)
    return inter / (area_a + area_b - inter)


def match(threshold, truths, priors, labels):
    overlaps = jaccard(truths, point_form(priors))
    best_prior_overlap, best_prior_idx = overlaps.max(1, keepdim=True)
    best_truth_overlap, best_truth_idx = overlaps.max(0, keepdim=True)
    best_truth_idx.squeeze_(0)
    best_truth_overlap.squeeze_(0)
    best_prior_idx.squeeze_(1)
    best_truth_overlap.index_fill_(0, best_prior_idx, 2)  # ensure best prior
    for j in range(best_prior_idx.size(0)):
        best_truth_idx[best_prior_idx[j]] = j
    matches = truths[best_truth_idx]
    conf = labels[best_truth_idx] + 1
    conf[best_truth_overlap < threshold] = 0  # label as background
    return matches, conf


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Conv2d(3, 6, 3, stride=2, padding=1)
        self.loc = nn.Conv2d(6, 4, 3, padding=1)
        self.conf = nn.Conv2d(6, 3, 3, padding=1)

    def forward(self, x):
        x = F.relu(self.body(x), inplace=True)
        loc = self.loc(x).permute(0, 2, 3, 1).contiguous()
        conf = self.conf(x).permute(0, 2, 3, 1).contiguous()
        return loc.view(loc.size(0), -1, 4), conf.view(conf.size(0), -1, 3)


def build():
    return Head()


def train(net, steps):
    r = np.random.RandomState(14)
    priors = torch.Tensor(r.uniform(0.2, 0.8, (16, 4)))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for _ in range(steps):
        images = Variable(torch.Tensor(r.randn(1, 3, 8, 8)))
        corner = r.uniform(0, 0.5, (2, 2))
        truths = torch.Tensor(np.concatenate([corner, corner + 0.4], 1))
        labels = torch.LongTensor([0, 1])
        loc_t, conf_t = match(0.3, truths, priors, labels)
        loc, conf = net(images)
        pos = conf_t > 0
        num_pos = pos.long().sum()
        loss_l = F.smooth_l1_loss(loc[0][pos], loc_t[pos], size_average=False)
        # Compute max conf across batch for hard negative mining
        loss_c = torch.logsumexp(conf[0], 1) - conf[0].gather(1, conf_t.view(-1, 1)).squeeze(1)
        mined = loss_c.clone().detach()
        mined[pos] = 0
        _, loss_idx = mined.sort(0, descending=True)
        _, idx_rank = loss_idx.sort(0)
        neg = idx_rank < torch.clamp(3 * num_pos, max=pos.size(0) - 1)
        loss = (loss_l + loss_c[pos | neg].sum()) / num_pos.float()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
