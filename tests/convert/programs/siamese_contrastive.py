import numpy as np
import torch
import torch.nn.functional as F
import torch.nn as nn, torch.optim as optim


class ContrastiveLoss(torch.nn.Module):
    """
    Contrastive loss function.
    Based on: torch.nn.functional.pairwise_distance
    """

    def __init__(self, margin=2.0):
        super(ContrastiveLoss, self).__init__()
        self.margin = margin

    def forward(self, output1, output2, label):
        euclidean_distance = F.pairwise_distance(output1, output2)
        loss_contrastive = torch.mean((1-label) * torch.pow(euclidean_distance, 2) +
                                      (label) * torch.pow(torch.clamp(self.margin - euclidean_distance, min=0.0), 2))
        return loss_contrastive


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.cnn1 = nn.Sequential(nn.ReflectionPad2d(1), nn.Conv2d(1, 4, kernel_size=3), nn.ReLU(inplace=True), nn.BatchNorm2d(4), nn.Dropout2d(p=.0))
        self.fc1 = nn.Linear(4*25, 5)

    def forward_once(self, x):
        output = self.cnn1(x)
        return self.fc1(output.view(output.size()[0], -1))

    def forward(self, a, b):
        return self.forward_once(a), self.forward_once(b)


def build():
    return Siamese()


def train(net, steps):
    criterion, triplet = ContrastiveLoss(), nn.TripletMarginLoss(margin=1.0)
    optimizer = optim.Adam(net.parameters(), lr=0.005)
    r = np.random.RandomState(28)
    losses = []
    for i in range(steps):
        img0, img1, img2 = (torch.Tensor(r.randn(3, 1, 5, 5)) for _ in range(3))
        label = torch.Tensor(r.randint(0, 2, 3))
        a, b = net(img0, img1)
        loss = criterion(a, b, label) + triplet(a, b, net.forward_once(img2)) + (1 - F.cosine_similarity(a, b)).mean()
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        losses.append(loss.item())
    return losses
