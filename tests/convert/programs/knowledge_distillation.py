try:
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
except ImportError:  # the program can do without
    torch = None
import numpy as np


def loss_fn_kd(outputs, labels, teacher_outputs, alpha=0.9, T=4.0):
    """
    Compute the knowledge-distillation (KD) loss given outputs, labels.
    "Hyperparameters": temperature and alpha
    """
    KD_loss = nn.KLDivLoss(reduction='batchmean')(F.log_softmax(outputs/T, dim=1),
                             F.softmax(teacher_outputs/T, dim=1)) * (alpha * T * T) + \
              F.cross_entropy(outputs, labels) * (1. - alpha)

    return KD_loss


def network(width):
    return nn.Sequential(nn.Linear(6, width), nn.ELU(), nn.LayerNorm(width), nn.Linear(width, 4))


def build():
    return {"student": network(4), "teacher": network(10)}


def train(models, steps):
    student, teacher = models["student"], models["teacher"]
    assert torch is not None
    teacher.eval()
    optimizer = torch.optim.NAdam(student.parameters(), lr=0.01)
    r = np.random.RandomState(37)
    losses = []
    for _ in range(steps):
        x = torch.tensor(r.randn(5, 6), dtype=torch.float32)
        y = torch.tensor(r.randint(0, 4, 5))
        with torch.no_grad():
            output_teacher = teacher(x)
        loss = loss_fn_kd(student(x), y, output_teacher)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
