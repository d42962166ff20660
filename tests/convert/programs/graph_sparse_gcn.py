# GCN with a sparse adjacency matrix, as in pygcn
import numpy as np
import scipy.sparse as sp
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parameter import Parameter


def sparse_mx_to_torch_sparse_tensor(sparse_mx):
    """Convert a scipy sparse matrix to a torch sparse tensor."""
    sparse_mx = sparse_mx.tocoo().astype(np.float32)
    indices = torch.from_numpy(np.vstack((sparse_mx.row, sparse_mx.col)).astype(np.int64))
    values = torch.from_numpy(sparse_mx.data)
    shape = torch.Size(sparse_mx.shape)
    return torch.sparse_coo_tensor(indices, values, shape)


class GraphConvolution(nn.Module):
    def __init__(self, in_features, out_features):
        super(GraphConvolution, self).__init__()
        self.weight = Parameter(torch.FloatTensor(in_features, out_features))
        self.bias = Parameter(torch.FloatTensor(out_features))
        self.reset_parameters()

    def reset_parameters(self):
        stdv = 1. / self.weight.size(1) ** 0.5
        self.weight.data.uniform_(-stdv, stdv)
        self.bias.data.uniform_(-stdv, stdv)

    def forward(self, input, adj):
        support = torch.mm(input, self.weight)
        output = torch.spmm(adj, support)
        return output + self.bias


class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.gc1 = GraphConvolution(5, 8)
        self.gc2 = GraphConvolution(8, 3)

    def forward(self, x, adj):
        x = F.relu(self.gc1(x, adj))
        return F.log_softmax(self.gc2(x, adj), dim=1)


def build():
    return GCN()


def train(model, steps):
    random = np.random.RandomState(11)
    links = (random.rand(10, 10) < 0.3).astype(np.float32)
    adj = sp.csr_matrix(np.maximum(links, links.T) + np.eye(10, dtype=np.float32))
    adj = sp.diags(1 / np.asarray(adj.sum(1)).reshape(-1)).dot(adj)
    adj = sparse_mx_to_torch_sparse_tensor(adj)
    features = torch.FloatTensor(random.randn(10, 5))
    labels = torch.LongTensor(random.randint(0, 3, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    losses = [adj.to_dense().sum().item(), float(adj.coalesce().indices().shape[1])]
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.nll_loss(model(features, adj), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
