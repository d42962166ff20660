import numpy as np
import torch
from torch import nn
from torch.autograd import Variable
from torch.utils.data import DataLoader, Dataset

num_epochs = 1
batch_size = 4
learning_rate = 1e-3


class Noisy(Dataset):
    def __init__(self, count):
        self.values = np.random.RandomState(23).rand(count, 10).astype(np.float32)

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        return self.values[index], index % 3


class autoencoder(nn.Module):
    def __init__(self):
        super(autoencoder, self).__init__()
        self.encoder = nn.Sequential(
            nn.Linear(10, 8),
            nn.ReLU(True),
            nn.Linear(8, 3))  # bottleneck
        self.decoder = nn.Sequential(
            nn.Linear(3, 8), nn.ReLU(True), nn.Linear(8, 10), nn.Tanh())

    def forward(self, x):
        x = self.encoder(x)
        x = self.decoder(x)
        return x


def build():
    return autoencoder()


def train(model, steps):
    dataloader = DataLoader(Noisy(batch_size * steps), batch_size=batch_size, shuffle=False)
    criterion = nn.MSELoss()
    optimizer = torch.optim.Adam(
        model.parameters(), lr=learning_rate, weight_decay=1e-5)
    losses = []
    for epoch in range(num_epochs):
        data_iter = iter(dataloader)
        i = 0
        while i < len(dataloader):
            img, _ = next(data_iter) if i % 2 else data_iter.__next__()
            img = img.view(img.size(0), -1)
            img = Variable(img, volatile=False)
            # ===================forward=====================
            output = model(img)
            loss = criterion(output, img)
            # ===================backward====================
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            i += 1
        # ===================log========================
        print('epoch [{}/{}], loss:{:.4f}'
              .format(epoch + 1, num_epochs, loss.data.item()))
    return losses
