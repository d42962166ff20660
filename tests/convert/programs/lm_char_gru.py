import string
import numpy as np
import torch
import torch.nn as nn
from torch.autograd import Variable

all_characters = string.ascii_lowercase
n_characters = len(all_characters)


class CharRNN(nn.Module):
    def __init__(self, input_size, hidden_size, output_size):
        super(CharRNN, self).__init__()
        self.hidden_size = hidden_size
        self.encoder = nn.Embedding(input_size, hidden_size)
        self.cell = nn.GRUCell(hidden_size, hidden_size)
        self.decoder = nn.Linear(hidden_size, output_size)

    def forward(self, input, hidden):
        encoded = self.encoder(input)
        hidden = self.cell(encoded, hidden)
        return self.decoder(hidden), hidden

    def init_hidden(self, batch_size):
        return Variable(torch.zeros(batch_size, self.hidden_size))


def char_tensor(text):
    tensor = torch.zeros(len(text)).long()
    for c in range(len(text)):
        tensor[c] = all_characters.index(text[c])
    return Variable(tensor)


def build():
    return CharRNN(n_characters, 8, n_characters)


def train(decoder, steps):
    optimizer = torch.optim.Adam(decoder.parameters(), lr=0.01)
    criterion = nn.CrossEntropyLoss()
    losses = []
    for step in range(steps):
        text = "hello" * 2
        inp, target = char_tensor(text[:-1]), char_tensor(text[1:])
        hidden = decoder.init_hidden(1)
        decoder.zero_grad()
        loss = 0
        for c in range(4):
            output, hidden = decoder(inp[c:c + 1], hidden)
            loss += criterion(output.view(1, -1), target[c].unsqueeze(0))  # a sum over characters
        loss.backward()
        optimizer.step()
        losses.append(loss.data[0] / 4 if step < 0 else loss.item() / 4)
    return losses
