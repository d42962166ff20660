"""TransE, DistMult and RotatE: knowledge graph embeddings that predict missing facts.

After A. Bordes and others, "Translating embeddings for modeling multi-relational data", 2013, B.
Yang and others, "Embedding entities and relations for learning and inference in knowledge bases",
2014, and Z. Sun and others, "RotatE: knowledge graph embedding by relational rotation in complex
space", 2019. Each scores how plausible a fact (head, relation, tail) is. The demonstration is a
random family, in which held-out facts have to follow from the others.

    python -m models.knowledge --model rotate --steps 300
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import networkx
import numpy as np

import metaop
from metaop import nn
from metaop.nn import functional as F

from .demonstration import Checkpoint, drawn_rows, parse_options, train, update


class Embeddings(nn.Module):
    """Embeddings of entities (`width`) and of relations (`relation_width`).

    Heads, relations and tails, int64 with shapes that broadcast, to scores of the common shape. The
    higher the score, the more plausible the fact.
    """

    def __init__(self, entities: int, relations: int, width: int, relation_width: int) -> None:
        super().__init__()
        self.entities = nn.Embedding(entities, width)
        self.relations = nn.Embedding(relations, relation_width)
        nn.init.uniform_(self.entities.weight, -1 / math.sqrt(width), 1 / math.sqrt(width))

    def forward(
        self, heads: metaop.Tensor, relations: metaop.Tensor, tails: metaop.Tensor
    ) -> metaop.Tensor:
        return self.scores(self.entities(heads), self.relations(relations), self.entities(tails))

    def scores(
        self, head: metaop.Tensor, relation: metaop.Tensor, tail: metaop.Tensor
    ) -> metaop.Tensor:
        """The scores of vectors (..., width)."""
        raise NotImplementedError


class TransE(Embeddings):
    """A relation is a translation: the score is `margin` - |head + relation - tail|₁."""

    def __init__(self, entities: int, relations: int, width: int, margin: float = 4.0) -> None:
        super().__init__(entities, relations, width, width)
        nn.init.uniform_(self.relations.weight, -1 / math.sqrt(width), 1 / math.sqrt(width))
        self.margin = margin

    def scores(
        self, head: metaop.Tensor, relation: metaop.Tensor, tail: metaop.Tensor
    ) -> metaop.Tensor:
        return self.margin - (head + relation - tail).abs().sum(-1)


class DistMult(Embeddings):
    """A bilinear score with a diagonal relation matrix, so all relations are symmetric."""

    def __init__(self, entities: int, relations: int, width: int) -> None:
        super().__init__(entities, relations, width, width)
        nn.init.normal_(self.relations.weight)

    def scores(
        self, head: metaop.Tensor, relation: metaop.Tensor, tail: metaop.Tensor
    ) -> metaop.Tensor:
        return (head * relation * tail).sum(-1)


class RotatE(Embeddings):
    """A relation rotates each of `width` complex components by an angle.

    So relations can be symmetric, antisymmetric, inverse to each other, and compositions.
    """

    def __init__(self, entities: int, relations: int, width: int, margin: float = 4.0) -> None:
        super().__init__(entities, relations, 2 * width, width)
        nn.init.uniform_(self.relations.weight, -math.pi, math.pi)
        self.margin = margin

    def scores(
        self, head: metaop.Tensor, relation: metaop.Tensor, tail: metaop.Tensor
    ) -> metaop.Tensor:
        (x, y), (u, v) = head.chunk(2, -1), tail.chunk(2, -1)
        cosine, sine = relation.cos(), relation.sin()
        across, up = x * cosine - y * sine - u, x * sine + y * cosine - v
        # The square root has no gradient at 0.
        return self.margin - (across**2 + up**2 + 1e-12).sqrt().sum(-1)


MODELS: dict[str, Callable[[int, int, int], Embeddings]] = {
    "rotate": RotatE,
    "transe": TransE,
    "distmult": DistMult,
}
RELATIONS = ("is a parent of", "is a child of", "is a grandparent of", "is a sibling of")


def family(people: int, random: np.random.Generator) -> np.ndarray:
    """The facts (facts, 3), int64, of a random family; columns are head, relation, tail."""
    seed = int(random.integers(2**31))
    tree = networkx.random_labeled_rooted_tree(people, seed=seed)
    descent = networkx.bfs_tree(tree, tree.graph["root"])
    facts = set()
    for parent, child in descent.edges:
        facts |= {(parent, 0, child), (child, 1, parent)}
        facts |= {(parent, 2, grandchild) for grandchild in descent.successors(child)}
        facts |= {(child, 3, other) for other in descent.successors(parent) if other != child}
    return np.array(sorted(facts), np.int64)


def reciprocal_rank(model: Embeddings, facts: np.ndarray, known: np.ndarray) -> float:
    """The filtered mean reciprocal rank of tails: other known facts are not ranked."""
    entities = model.entities.num_embeddings
    head, relation = (metaop.from_numpy(facts[:, column].copy())[:, None] for column in (0, 1))
    with metaop.no_grad():
        scores = model(head, relation, metaop.arange(entities)).numpy().copy()
    own = scores[np.arange(len(facts)), facts[:, 2]]
    for row, (first, kind, _) in enumerate(facts):
        others = known[(known[:, 0] == first) & (known[:, 1] == kind), 2]
        scores[row, others] = -np.inf
    # Ties count half.
    above = (scores > own[:, None]).sum(1) + 0.5 * (scores == own[:, None]).sum(1)
    return float(np.mean(1 / (1 + above)))


def main(arguments: Sequence[str] | None = None) -> float:
    """Learns most facts; returns the mean reciprocal rank of held-out ones."""
    options = parse_options(
        __doc__, arguments, steps=300, batch_size=128, lr=2e-2, model=tuple(MODELS), people=60,
        width=24, wrong=8,
    )  # fmt: skip
    random = np.random.default_rng(options.seed)
    facts = random.permutation(family(options.people, random))
    unknown, known = np.split(facts, [len(facts) // 10])
    model = MODELS[options.model](options.people, len(RELATIONS), options.width)
    optimizer = metaop.optim.Adam(model.parameters(), lr=options.lr)

    def step(number: int) -> dict[str, metaop.Tensor]:
        (rows,) = drawn_rows(known, size=options.batch_size, seed=(options.seed, number))
        head, relation, tail = rows.t()[:, :, None].unbind(0)
        drawn = np.random.default_rng((options.seed, number, 1))
        shape = (options.batch_size, options.wrong)
        wrong = metaop.from_numpy(drawn.integers(0, options.people, shape))
        # RotatE's self-adversarial negative sampling: plausible negatives get larger weights.
        far = model(head, relation, wrong)
        weights = far.detach().softmax(1)
        loss = -F.logsigmoid(model(head, relation, tail)).mean()
        loss = loss - (weights * F.logsigmoid(-far)).sum(1).mean()
        return {"loss": update(optimizer, loss)}

    checkpoint = Checkpoint(options.checkpoint, model=model, optimizer=optimizer)
    train(step, options.steps, options.model, checkpoint)
    found = reciprocal_rank(model, unknown, facts)
    print(f"mean reciprocal rank {found:.3f} of {len(unknown)} held-out facts")
    return found


if __name__ == "__main__":
    main()
