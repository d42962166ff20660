"""Programs as the examples of torch_geometric have them, on graphs made of random numbers."""

import torch
import torch_geometric as pyg
from numbers_alike import below, filled, normal
from torch.nn import Linear, Module, ReLU, Sequential
from torch.nn import functional as F
from torch_geometric import nn, utils
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import DataLoader


def _graph(nodes=24, edges=60, features=8, seed=0):
    edge_index = utils.to_undirected(below(nodes, 2, edges, seed=seed), num_nodes=nodes)
    x = normal(nodes, features, seed=seed)
    return Data(x=x, edge_index=edge_index, y=below(3, nodes, seed=seed + 1))


def _fitted(model, loss_of, steps=20):
    """The losses of some steps, and the weights."""
    filled(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def classifies_nodes():
    """The first network of the documents: two GCNConv, and what a node is."""
    data = _graph()

    class Net(Module):
        def __init__(self):
            super().__init__()
            self.first = nn.GCNConv(8, 16)
            self.second = nn.GCNConv(16, 3)

        def forward(self, data):
            x = F.relu(self.first(data.x, data.edge_index))
            return F.log_softmax(self.second(x, data.edge_index), dim=1)

    mask = torch.arange(24) < 12
    model = Net()
    losses = _fitted(model, lambda net: F.nll_loss(net(data)[mask], data.y[mask]))
    return [losses, model(data)]


def _layer(layer, **more):
    data = _graph()

    class Net(Module):
        def __init__(self):
            super().__init__()
            self.layer = layer
            self.head = Linear(12, 3)

        def forward(self):
            return self.head(F.elu(self.layer(data.x, data.edge_index, **more)))

    model = Net()
    return [_fitted(model, lambda net: F.cross_entropy(net(), data.y), 6), model()]


def attends_to_neighbours():
    """Attention over edges: GAT, its second version, and the transformer."""
    layers = [nn.GATConv(8, 4, heads=3), nn.GATv2Conv(8, 4, heads=3)]
    return [_layer(one) for one in [*layers, nn.TransformerConv(8, 4, heads=3)]]


def samples_and_aggregates():
    """GraphSAGE by mean, maximum and LSTM, and many aggregations at once."""
    kinds = ["mean", "max", ["mean", "std", "softmax"]]
    return [_layer(nn.SAGEConv(8, 12, aggr=one)) for one in kinds]


def convolves_in_other_ways():
    """Spectral, isomorphic, gated, edge-wise and jumping layers."""
    two = Sequential(Linear(8, 12), ReLU(), Linear(12, 12))
    edge = Sequential(Linear(16, 12), ReLU(), Linear(12, 12))
    layers = [nn.ChebConv(8, 12, K=3), nn.GINConv(two, train_eps=True), nn.GatedGraphConv(12, 2)]
    layers += [nn.EdgeConv(edge, aggr="max"), nn.SGConv(8, 12, K=2), nn.TAGConv(8, 12)]
    layers += [nn.ARMAConv(8, 12), nn.LEConv(8, 12), nn.ClusterGCNConv(8, 12)]
    layers += [nn.GCN(8, 12, num_layers=3, jk="cat", out_channels=12)]
    return [_layer(one) for one in layers]


def classifies_graphs_in_batches():
    """Batches of graphs of several sizes, a network with pools, and its accuracy."""
    graphs = [_graph(6 + k % 4, 14, seed=k) for k in range(16)]
    for number, graph in enumerate(graphs):
        graph.y = torch.tensor([number % 2])

    class Net(Module):
        def __init__(self):
            super().__init__()
            self.first = nn.GraphConv(8, 16)
            self.pool = nn.TopKPooling(16, ratio=0.8)
            self.second = nn.GraphConv(16, 16)
            self.norm = nn.GraphNorm(16)
            self.head = Linear(32, 2)

        def forward(self, data):
            x = F.relu(self.first(data.x, data.edge_index))
            x, edge_index, _, batch, _, _ = self.pool(x, data.edge_index, None, data.batch)
            x = F.relu(self.norm(self.second(x, edge_index), batch))
            pooled = [nn.global_mean_pool(x, batch), nn.global_max_pool(x, batch)]
            return self.head(torch.cat(pooled, dim=1))

    model = filled(Net())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses, right = [], 0
    for _ in range(3):
        for batch in DataLoader(graphs, batch_size=5):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(batch), batch.y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    for batch in DataLoader(graphs, batch_size=8):
        right += int((model(batch).argmax(1) == batch.y).sum())
    return [losses, right]


def predicts_links():
    """A graph autoencoder: embeddings, negative edges that are given, and its loss."""
    data = _graph()
    negative = below(24, 2, 40, seed=8)
    model = nn.GAE(nn.GCN(8, 16, num_layers=2, out_channels=4))

    def loss(net):
        z = net.encode(data.x, data.edge_index)
        return net.recon_loss(z, data.edge_index, negative)

    losses = _fitted(model, loss)
    z = model.encode(data.x, data.edge_index)
    return [losses, model.decoder(z, negative), model.test(z, data.edge_index, negative)]


def has_several_kinds_of_nodes():
    """A heterogeneous graph: HeteroConv, to_hetero and the linear layers by kind."""
    data = HeteroData()
    data["user"].x, data["film"].x = normal(9, 5), normal(7, 6, seed=2)
    edges = torch.stack([below(9, 20), below(7, 20, seed=4)])
    data["user", "sees", "film"].edge_index = edges
    data = pyg.transforms.ToUndirected()(data)

    class Net(Module):
        def __init__(self):
            super().__init__()
            kinds = {
                ("user", "sees", "film"): nn.SAGEConv((5, 6), 8),
                ("film", "rev_sees", "user"): nn.GATConv((6, 5), 8, add_self_loops=False),
            }
            self.layer = nn.HeteroConv(kinds, aggr="sum")
            self.head = Linear(8, 2)

        def forward(self, x, edges):
            return self.head(self.layer(x, edges)["film"].relu())

    model = Net()

    def loss(net):
        return F.cross_entropy(net(data.x_dict, data.edge_index_dict), below(2, 7, seed=6))

    return [_fitted(model, loss, 8), len(data.metadata()[1])]


def passes_messages_of_ones_own():
    """A MessagePassing with message, aggregate and update of its own, and edge features."""

    class Own(nn.MessagePassing):
        def __init__(self):
            super().__init__(aggr="add")
            self.lin = Linear(11, 12)

        def forward(self, x, edge_index, edge_attr):
            return self.propagate(edge_index, x=x, edge_attr=edge_attr)

        def message(self, x_j, x_i, edge_attr):
            return self.lin(torch.cat([x_j - x_i, edge_attr], dim=-1)).tanh()

        def update(self, inputs, x):
            return inputs + x.mean(-1, keepdim=True)

    return _layer(Own(), edge_attr=normal(_graph().num_edges, 3, seed=7))


def transforms_and_measures_graphs():
    """Transforms, and functions of torch_geometric.utils."""
    data = _graph()
    todo = [pyg.transforms.NormalizeFeatures(), pyg.transforms.AddSelfLoops()]
    todo += [pyg.transforms.LocalDegreeProfile(), pyg.transforms.GCNNorm()]
    done = pyg.transforms.Compose(todo)(data.clone())
    dense = utils.to_dense_adj(data.edge_index)
    numbers = [utils.degree(data.edge_index[0]), dense, utils.get_laplacian(data.edge_index)]
    numbers += [utils.softmax(normal(60), below(9, 60)), utils.scatter(normal(60), below(9, 60))]
    inner = utils.subgraph(below(24, 9), data.edge_index, relabel_nodes=True, num_nodes=24)[0]
    numbers += [utils.k_hop_subgraph(3, 2, data.edge_index)[0], inner]
    return [done.x, done.edge_weight, numbers, data.is_undirected(), data.has_isolated_nodes()]
