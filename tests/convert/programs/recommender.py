import numpy as np
import torch


class NeuMF(torch.nn.Module):
    def __init__(self, num_users=6, num_items=7, latent_dim=4):
        super().__init__()
        self.embedding_user = torch.nn.Embedding(num_embeddings=num_users, embedding_dim=latent_dim)
        self.embedding_item = torch.nn.Embedding(num_embeddings=num_items, embedding_dim=latent_dim)
        self.bag = torch.nn.EmbeddingBag(num_items, latent_dim, mode='mean')
        self.fc_layers = torch.nn.ModuleList()
        for idx, (in_size, out_size) in enumerate(zip([12, 8], [8, 4])):
            self.fc_layers.append(torch.nn.Linear(in_size, out_size))
        self.affine_output = torch.nn.Linear(in_features=4, out_features=1)
        self.logistic = torch.nn.Sigmoid()

    def forward(self, user_indices, item_indices, history):
        vector = torch.cat([self.embedding_user(user_indices), self.embedding_item(item_indices), self.bag(history)], dim=-1)
        for idx, _ in enumerate(range(len(self.fc_layers))):
            vector = self.fc_layers[idx](vector)
            vector = torch.nn.ReLU()(vector)
        return self.logistic(self.affine_output(vector)).view(-1)


def build():
    return NeuMF()


def train(model, steps):
    opt = torch.optim.RMSprop(model.parameters(), lr=0.01, alpha=0.99, eps=1e-4)
    crit = torch.nn.BCELoss()
    r = np.random.RandomState(38)
    losses = []
    for _ in range(steps):
        users = torch.LongTensor(r.randint(0, 6, 5))
        items = torch.LongTensor(r.randint(0, 7, 5))
        history = torch.LongTensor(r.randint(0, 7, (5, 3)))
        ratings = torch.FloatTensor(r.randint(0, 2, 5).astype('float32'))
        opt.zero_grad()
        loss = crit(model(users, items, history), ratings)
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return losses
