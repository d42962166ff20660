import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import optim
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SOS_token = 0  # start of sentence


class EncoderRNN(nn.Module):
    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.embedding = nn.Embedding(input_size, hidden_size)
        self.gru = nn.GRU(hidden_size, hidden_size, batch_first=True, bidirectional=True)

    def forward(self, tokens, lengths):
        packed = pack_padded_sequence(self.embedding(tokens), lengths, batch_first=True)
        output, hidden = self.gru(packed)
        output, _ = pad_packed_sequence(output, batch_first=True)
        forward, backward = output.chunk(2, dim=-1)
        return forward + backward, hidden.sum(0)


class AttnDecoder(nn.Module):
    def __init__(self, hidden_size, output_size):
        super().__init__()
        self.embedding = nn.Embedding(output_size, hidden_size)
        self.attn = nn.Linear(hidden_size * 2, hidden_size)
        self.v = nn.Parameter(torch.rand(hidden_size))
        self.cell = nn.LSTMCell(hidden_size * 2, hidden_size)
        self.out = nn.Linear(hidden_size, output_size)

    def forward(self, token, state, encoded):
        h, c = state
        expanded = h.unsqueeze(1).expand(-1, encoded.size(1), -1)
        energy = torch.tanh(self.attn(torch.cat((expanded, encoded), 2)))
        weights = F.softmax(torch.einsum("bth,h->bt", energy, self.v), dim=1)
        context = torch.bmm(weights.unsqueeze(1), encoded).squeeze(1)
        h, c = self.cell(torch.cat([self.embedding(token), context], dim=1), (h, c))
        return F.log_softmax(self.out(h), dim=1), (h, c)


def build():
    return {"encoder": EncoderRNN(9, 6).to(device), "decoder": AttnDecoder(6, 9).to(device)}


def train(models, steps):
    encoder, decoder = models["encoder"], models["decoder"]
    encoder_optimizer = optim.SGD(encoder.parameters(), lr=0.1)
    decoder_optimizer = optim.SGD(decoder.parameters(), lr=0.1)
    criterion = nn.NLLLoss(ignore_index=8)
    r = np.random.RandomState(11)
    losses = []
    for _ in range(steps):
        source = torch.tensor(r.randint(0, 8, (3, 5)), dtype=torch.long, device=device)
        target = torch.tensor(r.randint(0, 8, (3, 3)), device=device)
        encoder_optimizer.zero_grad()
        decoder_optimizer.zero_grad()
        encoded, h = encoder(source, [5, 4, 2])
        state = (h, torch.zeros_like(h))
        token = torch.full((3,), SOS_token, dtype=torch.long, device=device)
        loss = 0
        for t in range(target.size(1)):
            output, state = decoder(token, state, encoded)
            loss += criterion(output, target[:, t])
            token = target[:, t]  # teacher forcing
        loss.backward()
        encoder_optimizer.step()
        decoder_optimizer.step()
        losses.append(loss.item() / target.size(1))
    return losses
