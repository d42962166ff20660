"""Facts from vectors: PyTorch's values, what relations can be, ranks, and learning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metaop
from models import knowledge
from tests.models.comparison import compare


@pytest.mark.parametrize("name", ["TransE", "DistMult", "RotatE"])
def test_values_and_gradients_are_those_of_torch(name: str) -> None:
    def loss(library: Any, model: Any, head: Any, relation: Any, tail: Any) -> tuple[Any, Any]:
        scores = model(head, relation, tail)
        return scores, library.nn.functional.logsigmoid(scores).mean()

    random = np.random.default_rng(1)
    head, relation = random.integers(0, 7, (5, 1)), random.integers(0, 3, (5, 1))
    tail = random.integers(0, 7, (5, 4))
    compare("knowledge", lambda module: getattr(module, name)(7, 3, 6), loss, head, relation, tail)


def test_scores_are_those_of_the_papers() -> None:
    head, relation, tail = np.random.default_rng(0).standard_normal((3, 2, 8))
    vectors = [metaop.tensor(value) for value in (head, relation, tail)]
    moved = knowledge.TransE(2, 2, 8, margin=3.0).scores(*vectors).numpy()
    np.testing.assert_allclose(moved, 3 - np.abs(head + relation - tail).sum(1))
    weighed = knowledge.DistMult(2, 2, 8).scores(*vectors).numpy()
    np.testing.assert_allclose(weighed, np.einsum("bi,bi,bi->b", head, relation, tail))
    points = [value[:, :4] + 1j * value[:, 4:] for value in (head, tail)]
    apart = points[0] * np.exp(1j * relation[:, :4]) - points[1]
    turned = knowledge.RotatE(2, 2, 4, margin=3.0).scores(vectors[0], vectors[1][:, :4], vectors[2])
    np.testing.assert_allclose(turned.numpy(), 3 - np.abs(apart).sum(1), atol=1e-9)


def test_equal_points_have_a_slope() -> None:
    model = knowledge.RotatE(2, 1, 3)
    with metaop.no_grad():
        model.relations.weight.zero_()
    same = metaop.tensor([1])
    model(same, metaop.tensor([0]), same).sum().backward()
    assert np.isfinite(model.entities.weight.grad.numpy()).all()


def test_facts_of_a_family_follow_from_parents() -> None:
    facts = knowledge.family(25, np.random.default_rng(3))
    of = [{(a, b) for a, kind, b in facts.tolist() if kind == number} for number in range(4)]
    parents, children, grandparents, siblings = of
    assert len(parents) == 24 and len({child for _, child in parents}) == 24
    assert children == {(child, parent) for parent, child in parents}
    assert grandparents == {(a, c) for a, b in parents for d, c in parents if b == d}
    assert siblings == {
        (b, d) for a, b in parents for c, d in parents if a == c and b != d
    }  # fmt: skip


def test_ranks_leave_out_other_facts() -> None:
    metaop.manual_seed(0)
    model = knowledge.DistMult(9, 2, 4)
    facts = np.array([[0, 0, 1], [0, 0, 2], [0, 0, 3], [4, 1, 5], [4, 0, 5]])
    expected = []
    for head, relation, tail in facts[1:4]:
        true = [t for h, r, t in facts.tolist() if (h, r) == (head, relation)]
        scores = [
            model(*(metaop.tensor(int(v)) for v in (head, relation, other))).item()
            for other in range(9)
        ]
        above = sum(scores[o] > scores[tail] for o in range(9) if o not in true)
        expected.append(1 / (1 + above))
    found = knowledge.reciprocal_rank(model, facts[1:4], facts)
    assert found == pytest.approx(np.mean(expected)) and 0 < found < 1


def test_an_unknown_model_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        knowledge.main(["--model", "holE"])
    error = capsys.readouterr().err
    assert "holE" in error and all(name in error for name in knowledge.MODELS)


@pytest.mark.parametrize(("name", "least"), [("transe", 0.4), ("distmult", 0.2), ("rotate", 0.5)])
def test_facts_that_were_left_out_are_found(name: str, least: float) -> None:
    """A guess among 40 people has a mean reciprocal rank of 0.1."""
    assert knowledge.main(["--model", name, "--people", "40", "--steps", "150"]) > least


def test_training_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    words = ["--people", "20", "--batch-size", "16", "--steps"]
    kept = ["--checkpoint", str(tmp_path / "kept.pth")]
    knowledge.main([*words, "5", *kept])
    assert knowledge.main([*words, "15", *kept]) == knowledge.main([*words, "15"])
