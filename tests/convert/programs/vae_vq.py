import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class VectorQuantizer(nn.Module):
    """Straight-through quantisation of Conv features."""

    def __init__(self, num_embeddings, embedding_dim, commitment_cost):
        super().__init__()
        self._embedding = nn.Embedding(num_embeddings, embedding_dim)
        self._embedding.weight.data.uniform_(-1/num_embeddings, 1/num_embeddings)
        self._commitment_cost = commitment_cost

    def forward(self, inputs):
        # convert inputs from BCHW -> BHWC
        inputs = inputs.permute(0, 2, 3, 1).contiguous()
        input_shape = inputs.shape
        flat_input = inputs.view(-1, input_shape[-1])
        distances = (torch.sum(flat_input**2, dim=1, keepdim=True)
                     + torch.sum(self._embedding.weight**2, dim=1)
                     - 2 * torch.matmul(flat_input, self._embedding.weight.t()))
        encoding_indices = torch.argmin(distances, dim=1).unsqueeze(1)
        encodings = torch.zeros(encoding_indices.shape[0], self._embedding.num_embeddings, device=inputs.device)
        encodings.scatter_(1, encoding_indices, 1)
        quantized = torch.matmul(encodings, self._embedding.weight).view(input_shape)
        loss = F.mse_loss(quantized, inputs.detach()) + self._commitment_cost * F.mse_loss(quantized.detach(), inputs)
        quantized = inputs + (quantized - inputs).detach()
        avg_probs = torch.mean(encodings, dim=0)
        perplexity = torch.exp(-torch.sum(avg_probs * torch.log(avg_probs + 1e-10)))
        return loss, quantized.permute(0, 3, 1, 2).contiguous(), perplexity


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(1, 6, 4, 2, 1), nn.ReLU(), nn.Conv2d(6, 4, 1))
        self.vq = VectorQuantizer(5, 4, 0.25)
        self.decoder = nn.ConvTranspose2d(4, 1, 4, 2, 1)

    def forward(self, x):
        loss, quantized, perplexity = self.vq(self.encoder(x))
        return loss, self.decoder(quantized), perplexity


def build():
    return Model()


def train(model, steps):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, amsgrad=False)
    r = np.random.RandomState(22)
    losses = []
    for _ in range(steps):
        data = torch.tensor(r.randn(2, 1, 6, 6), dtype=torch.float32)
        optimizer.zero_grad()
        vq_loss, recon, perplexity = model(data)
        loss = F.mse_loss(recon, data) + vq_loss
        loss.backward()
        optimizer.step()
        losses += [loss.item(), perplexity.item()]
    return losses
