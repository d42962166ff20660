from __future__ import division

import numpy as np
import torch
import torch.nn as nn


def to_cpu(tensor):
    return tensor.detach().cpu()


class YOLOLayer(nn.Module):
    """Detection layer"""

    def __init__(self, anchors, num_classes):
        super(YOLOLayer, self).__init__()
        self.anchors = anchors
        self.num_anchors, self.num_classes = len(anchors), num_classes
        self.mse_loss, self.bce_loss = nn.MSELoss(), nn.BCELoss()
        self.grid_size = 0

    def compute_grid_offsets(self, grid_size, cuda=False):
        FloatTensor = torch.cuda.FloatTensor if cuda else torch.FloatTensor
        g = self.grid_size = grid_size
        self.grid_x = torch.arange(g).repeat(g, 1).view([1, 1, g, g]).type(FloatTensor)
        self.grid_y = torch.arange(g).repeat(g, 1).t().view([1, 1, g, g]).type(FloatTensor)
        self.scaled_anchors = FloatTensor([(a_w / 8, a_h / 8) for a_w, a_h in self.anchors])
        self.anchor_w = self.scaled_anchors[:, 0:1].view((1, self.num_anchors, 1, 1))
        self.anchor_h = self.scaled_anchors[:, 1:2].view((1, self.num_anchors, 1, 1))

    def forward(self, x, targets=None):
        # Tensors for cuda support
        ByteTensor = torch.cuda.ByteTensor if x.is_cuda else torch.ByteTensor
        num_samples, grid_size = x.size(0), x.size(2)
        prediction = (
            x.view(num_samples, self.num_anchors, self.num_classes + 5, grid_size, grid_size)
            .permute(0, 1, 3, 4, 2)
            .contiguous()
        )
        px, py = torch.sigmoid(prediction[..., 0]), torch.sigmoid(prediction[..., 1])  # Center x, y
        w, h = prediction[..., 2], prediction[..., 3]
        pred_conf = torch.sigmoid(prediction[..., 4])
        pred_cls = torch.sigmoid(prediction[..., 5:])
        if grid_size != self.grid_size:
            self.compute_grid_offsets(grid_size, cuda=x.is_cuda)
        pred_boxes = torch.zeros(prediction[..., :4].shape)
        pred_boxes[..., 0] = px.data + self.grid_x
        pred_boxes[..., 1] = py.data + self.grid_y
        pred_boxes[..., 2] = torch.exp(w.data) * self.anchor_w
        pred_boxes[..., 3] = torch.exp(h.data) * self.anchor_h
        mask = targets > 0.5
        loss = self.mse_loss(px[mask], pred_boxes[..., 0][mask] * 0.1) + self.bce_loss(pred_conf, targets)
        loss = loss + self.bce_loss(pred_cls[mask], torch.ones_like(pred_cls[mask])) + self.mse_loss(h[~mask], w[~mask])
        return pred_boxes, loss


class Darknet(nn.Module):
    def __init__(self):
        super().__init__()
        self.module_list = nn.ModuleList()
        module = nn.Sequential()
        module.add_module("conv_0", nn.Conv2d(3, 14, 3, stride=2, padding=1))
        module.add_module("leaky_0", nn.LeakyReLU(0.1))
        self.module_list.append(module)
        self.yolo = YOLOLayer([(4, 6), (8, 5)], 2)

    def forward(self, x, targets):
        return self.yolo(self.module_list[0](x), targets)


def build():
    return Darknet()


def train(model, steps):
    optimizer = torch.optim.Adam(filter(lambda p: p.requires_grad, model.parameters()))
    r = np.random.RandomState(15)
    losses = []
    for batch_i in range(steps):
        imgs = torch.tensor(r.rand(2, 3, 8, 8), dtype=torch.float32)
        targets = torch.tensor((r.rand(2, 2, 4, 4) > 0.6).astype(np.float32))
        _, loss = model(imgs, targets)
        loss.backward()
        if (batch_i + 1) % 2 == 0:  # gradient accumulation
            optimizer.step()
            optimizer.zero_grad()
        losses.append(to_cpu(loss).item())
    return losses
