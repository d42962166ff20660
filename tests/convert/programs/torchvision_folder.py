'''Train CIFAR-like pictures with torchvision: folders, transforms, a ResNet, a picture grid.'''
import os, tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
import torchvision
import torchvision.transforms as transforms
from PIL import Image
from torchvision import datasets, models
from torchvision.utils import save_image

classes = ('plane', 'car', 'bird')
root = tempfile.mkdtemp()


def write_pictures():
    """Stripes of different directions, since nothing can be downloaded."""
    y, x = np.mgrid[0:36, 0:40]
    for number, name in enumerate(classes):
        os.makedirs(os.path.join(root, name))
        for k in range(4):
            wave = np.sin(0.4 * (number * x + (2 - number) * y) + k)
            pixels = np.stack([wave, wave ** 2, -wave], -1) * 127 + 127
            Image.fromarray(pixels.astype(np.uint8)).save(os.path.join(root, name, '%d.png' % k))


# Data
print('==> Preparing data..')
write_pictures()
transform_test = transforms.Compose([
    transforms.Resize(32),  # the shorter side
    transforms.CenterCrop(32),
    transforms.ToTensor(),
    transforms.Normalize((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
])
testset = datasets.ImageFolder(root, transform=transform_test)
loader = torch.utils.data.DataLoader(testset, batch_size=6, shuffle=False)


def build():
    net = models.resnet18(num_classes=len(testset.classes))
    net.maxpool = nn.Identity()  # small pictures
    return net


def train(net, steps):
    device = 'cuda' if torch.cuda.is_available() else 'cpu'
    net = net.to(device)
    criterion = nn.CrossEntropyLoss()
    optimizer = optim.SGD(net.parameters(), lr=0.001, momentum=0.9, weight_decay=5e-4)
    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=200)
    losses = []
    net.train()
    while len(losses) < steps:
        for batch_idx, (inputs, targets) in enumerate(loader):
            inputs, targets = inputs.to(device), targets.to(device)
            optimizer.zero_grad()
            loss = criterion(net(inputs), targets)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        scheduler.step()
    grid = torchvision.utils.make_grid(inputs, nrow=3, normalize=True)
    save_image(inputs, os.path.join(root, 'last.png'), nrow=3, normalize=True)
    losses.append(grid.mean().item())  # the pictures went the same way
    return losses
