"""Programs as the documents of captum have them."""

import torch
from captum import attr
from captum.robust import FGSM, PGD
from numbers_alike import filled, normal
from torch import nn


class _Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, padding=1)
        self.relu = nn.ReLU()
        self.pool = nn.MaxPool2d(2)
        self.relu2 = nn.ReLU()
        self.first = nn.Linear(16, 8)
        self.last = nn.Linear(8, 3)

    def forward(self, x):
        x = self.pool(self.relu(self.conv(x)))
        return self.last(self.relu2(self.first(x.flatten(1))))


def attributes_to_pictures():
    """Methods that follow gradients, those that hook layers, and those that hide parts."""
    model, x = filled(_Network()).eval(), normal(2, 2, 4, 4)
    gradients = attr.IntegratedGradients(model)
    made = [gradients.attribute(x, target=1, n_steps=8, return_convergence_delta=True)]
    for kind in (attr.Saliency, attr.InputXGradient, attr.DeepLift, attr.GuidedBackprop, attr.LRP):
        made.append(kind(model).attribute(x, target=2))
    made.append(attr.Deconvolution(model).attribute(x, target=0))
    made.append(attr.Occlusion(model).attribute(x, (1, 2, 2), strides=(1, 2, 2), target=0))
    made.append(attr.FeatureAblation(model).attribute(x, target=0))
    return made


def attributes_to_layers():
    """What layers and neurons contribute."""
    model, x = filled(_Network()).eval(), normal(2, 2, 4, 4)
    return [
        attr.LayerConductance(model, model.first).attribute(x, target=1, n_steps=6),
        attr.LayerGradCam(model, model.conv).attribute(x, target=1),
        attr.LayerActivation(model, model.relu).attribute(x),
        attr.LayerIntegratedGradients(model, model.conv).attribute(x, target=1, n_steps=6),
        attr.LayerDeepLift(model, model.first).attribute(x, target=1),
        attr.NeuronGradient(model, model.first).attribute(x, 3),
        attr.GuidedGradCam(model, model.conv).attribute(x, target=1),
        attr.InternalInfluence(model, model.first).attribute(x, target=1, n_steps=6),
    ]


def attributes_to_words():
    """Embeddings are made interpretable, and their words are scored."""
    model = filled(nn.Sequential(nn.Embedding(10, 6), nn.Flatten(), nn.Linear(18, 2)))
    words = torch.tensor([[1, 4, 7], [2, 2, 9]])
    layer = attr.LayerIntegratedGradients(model, model[0])
    scores = layer.attribute(words, target=1, n_steps=6, baselines=torch.zeros_like(words))
    return [scores, attr.TokenReferenceBase(3).generate_reference(4, "cpu")]


def attacks_pictures():
    """Pictures that are changed so that the network errs."""
    model, x = filled(_Network()).eval(), normal(2, 2, 4, 4)
    y = torch.tensor([0, 2])
    fast = FGSM(model, lower_bound=-2, upper_bound=2).perturb(x, 0.1, y)
    return [fast, PGD(model).perturb(x, 0.2, 0.05, 3, y, norm="L2")]
