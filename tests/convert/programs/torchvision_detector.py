# A small two-stage detector: proposals, roi_align, focal loss, nms
import numpy as np
import torch
from torch import nn
import torch.nn.functional as F
from torchvision import ops
from torchvision.ops import boxes as box_ops, RoIAlign, sigmoid_focal_loss


class Detector(nn.Module):
    def __init__(self, num_classes=3, channels=8):
        super().__init__()
        self.body = nn.Sequential(
            ops.Conv2dNormActivation(3, channels, 3, stride=2),
            nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU(),
        )
        self.pool = RoIAlign(output_size=(3, 3), spatial_scale=0.5, sampling_ratio=2, aligned=True)
        self.fc = nn.Linear(channels * 9, 16)
        self.cls = nn.Linear(16, num_classes)
        self.reg = nn.Linear(16, 4)

    def forward(self, images, proposals):
        x = self.pool(self.body(images), proposals).flatten(1)
        x = F.relu(self.fc(x))
        return self.cls(x), self.reg(x)


def proposals_for(random, count, size=32.0):
    corner = random.uniform(0, size * 0.6, (count, 2))
    return np.concatenate([corner, corner + random.uniform(4, size * 0.4, (count, 2))], 1)


def build():
    return Detector()


def train(model, steps):
    random = np.random.RandomState(7)
    images = torch.tensor(random.randn(2, 3, 32, 32)).float()
    truth = torch.tensor(proposals_for(random, 3)).float()
    labels = torch.tensor([0, 2, 1])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(steps):
        rois = [torch.tensor(proposals_for(random, 12)).float() for _ in range(2)]
        logits, deltas = model(images, rois)
        flat = torch.cat(rois)
        iou = ops.box_iou(flat, truth)
        best, index = iou.max(dim=1)
        target = F.one_hot(labels[index], 3).float() * (best > 0.1)[:, None].float()
        boxes = flat + deltas.tanh() * 2
        cls_loss = sigmoid_focal_loss(logits, target, alpha=0.25, gamma=2.0, reduction='mean')
        box_loss = ops.generalized_box_iou_loss(boxes, truth[index], reduction='mean')
        loss = 10 * cls_loss + box_loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scores, kinds = logits.detach().sigmoid().max(1)
        keep = box_ops.batched_nms(boxes.detach(), scores, kinds, 0.3)
        kept = ops.nms(flat, torch.arange(len(flat)).float(), iou_threshold=0.5)
        clipped = box_ops.clip_boxes_to_image(boxes.detach()[keep], (32, 32))
        losses += [loss.item(), float(len(kept)), box_ops.box_area(clipped).mean().item() / 100]
    return losses
