import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
import copy


class ContentLoss(nn.Module):
    def __init__(self, target,):
        super(ContentLoss, self).__init__()
        # we 'detach' the target content from the tree used
        # to dynamically compute the gradient
        self.target = target.detach()

    def forward(self, input):
        self.loss = F.mse_loss(input, self.target)
        return input


def gram_matrix(input):
    a, b, c, d = input.size()  # a=batch size(=1)
    features = input.view(a * b, c * d)  # resize F_XL into \hat F_XL
    G = torch.mm(features, features.t())  # compute the gram product
    return G.div(a * b * c * d)


class StyleLoss(nn.Module):
    def __init__(self, target_feature):
        super(StyleLoss, self).__init__()
        self.target = gram_matrix(target_feature).detach()

    def forward(self, input):
        G = gram_matrix(input)
        self.loss = F.mse_loss(G, self.target)
        return input


def build():
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(inplace=False), nn.Conv2d(4, 4, 3, padding=1))


def train(cnn, steps):
    cnn = copy.deepcopy(cnn).eval()
    for p in cnn.parameters():
        p.requires_grad_(False)
    r = np.random.RandomState(29)
    style_img, content_img = (torch.tensor(r.rand(1, 3, 6, 6)).float() for _ in range(2))
    model, i = nn.Sequential(), 0
    style_losses, content_losses = [], []
    for layer in cnn.children():
        if isinstance(layer, nn.Conv2d):
            i += 1
            name = 'conv_{}'.format(i)
        else:
            name = 'relu_{}'.format(i)
        model.add_module(name, layer)
        if name == 'conv_2':
            content_losses.append(ContentLoss(model(content_img)))
            model.add_module("content_loss_{}".format(i), content_losses[-1])
        if name.startswith('conv'):
            style_losses.append(StyleLoss(model(style_img)))
            model.add_module("style_loss_{}".format(i), style_losses[-1])
    input_img = content_img.clone().requires_grad_(True)
    optimizer = optim.LBFGS([input_img], max_iter=2)
    losses = []

    def closure():
        with torch.no_grad():
            input_img.clamp_(0, 1)
        optimizer.zero_grad()
        model(input_img)
        loss = sum(sl.loss for sl in style_losses) * 1000 + sum(cl.loss for cl in content_losses)
        loss.backward()
        losses.append(loss.item())
        return loss

    for _ in range(steps):
        optimizer.step(closure)
    return losses[:steps]
