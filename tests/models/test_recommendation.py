"""Networks that recommend: their made-up data, PyTorch's values, and what they find."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metaop
from models import clicks, dlrm, gcmc, wide_deep
from tests.models.comparison import compare, parameter_count

random = np.random.default_rng(7)


def test_the_area_is_how_often_clicks_are_ranked_higher() -> None:
    scores, clicked = random.integers(0, 9, 60) / 9, random.integers(0, 2, 60)
    hits, misses = scores[clicked == 1][:, None], scores[clicked == 0]
    expected = ((hits > misses) + 0.5 * (hits == misses)).mean()
    assert clicks.ranking(scores, clicked) == pytest.approx(expected)
    assert np.isnan(clicks.ranking(scores, np.ones(60)))


def test_clicks_come_by_their_probabilities() -> None:
    rows = clicks.draw_clicks(20_000, 3)
    order = np.argsort(rows.chance)
    for part in np.array_split(order, 10):
        spread = np.sqrt((rows.chance[part] * (1 - rows.chance[part])).mean() / len(part))
        assert abs(rows.clicked[part].mean() - rows.chance[part].mean()) < 4 * spread
    assert (rows.kinds.max(0) == np.array(clicks.SIZES) - 1).all() and rows.kinds.min() == 0
    assert len(rows.part(slice(5)).clicked) == 5


def click_loss(library: Any, model: Any, numbers: Any, kinds: Any, clicked: Any) -> Any:
    logits = model(numbers, kinds)
    return logits, library.nn.functional.binary_cross_entropy_with_logits(logits, clicked)


@pytest.mark.parametrize(
    ("name", "build"),
    [
        ("wide_deep", lambda m: m.WideDeep(3, (5, 4, 3), ((0, 1), (2, 1)), 4, (6, 5))),
        ("dlrm", lambda m: m.DLRM(3, (5, 4, 3), (6, 4), (7,))),
    ],
)
def test_values_gradients_and_steps_are_those_of_torch(name: str, build: Any) -> None:
    numbers, clicked = random.standard_normal((8, 3)), random.integers(0, 2, 8).astype(float)
    kinds = random.integers(0, (5, 4, 3), (8, 3))
    compare(name, build, click_loss, numbers, kinds, clicked, steps=20)


def test_names_and_size_of_dlrm_are_those_of_the_authors_program() -> None:
    """The settings for Criteo's data of a day: 13 numbers, and vectors of 16."""
    model = dlrm.DLRM(13, (10, 20), (512, 256, 64, 16), (512, 256))
    names = list(model.state_dict())
    assert names[:4] == ["emb_l.0.weight", "emb_l.1.weight", "bot_l.0.weight", "bot_l.0.bias"]
    assert names[-2:] == ["top_l.4.weight", "top_l.4.bias"]
    bottom = 14 * 512 + 513 * 256 + 257 * 64 + 65 * 16
    assert parameter_count(model) == 30 * 16 + bottom + 20 * 512 + 513 * 256 + 257


def test_gcmc_is_its_formula() -> None:
    rows = gcmc.made_up(6, 5, 0.6, random)
    links = gcmc.links_of(rows, 6, 5, 5)
    for person, thing, rating in rows.tolist():
        given, got = (rows[:, 0] == person).sum(), (rows[:, 1] == thing).sum()
        assert links[rating, person, thing] == pytest.approx((given * got) ** -0.5)
    assert (links > 0).sum() == len(rows)
    model = gcmc.GCMC(6, 5, 5, 4, 3, dropout=0.0).double()
    values = {name: value.detach().numpy() for name, value in model.named_parameters()}
    found = model(metaop.tensor(links).double()).detach().numpy()
    for person, thing, rating in rows.tolist():
        read = []
        for kind, table in ((0, "things"), (1, "people")):
            own = (person, thing)[kind]
            total = np.zeros(4)
            for row in rows[rows[:, kind] == own]:
                weight = values[table][: row[2] + 1, row[1 - kind]].sum(0)
                total += links[row[2], row[0], row[1]] * weight
            name = ("person.weight", "thing.weight")[kind]
            read.append(values[name] @ np.maximum(total, 0))
        matrix = np.einsum("b,bij->ij", values["shares"][rating], values["pairs"])
        assert found[person, thing, rating] == pytest.approx(read[0] @ matrix @ read[1], abs=1e-6)


def test_gcmc_has_the_values_gradients_and_steps_of_torch() -> None:
    rows = gcmc.made_up(6, 5, 0.6, np.random.default_rng(0))
    links = gcmc.links_of(rows, 6, 5, 5)

    def loss(library: Any, model: Any, links: Any, rows: Any) -> tuple[Any, Any]:
        logits = model(links)[rows[:, 0], rows[:, 1]]
        return logits, library.nn.functional.cross_entropy(logits, rows[:, 2])

    compare("gcmc", lambda m: m.GCMC(6, 5, 5, 4, 3, dropout=0.0), loss, links, rows, steps=20)


def test_new_clicks_and_ratings_are_guessed() -> None:
    """Of made-up clicks, the true probabilities reach 0.90; a linear model, 0.74."""
    assert dlrm.main(["--steps", "300"]) > 0.84
    assert wide_deep.main(["--steps", "300"]) > 0.76
    # The noise and the rounding alone make an error of 0.49, the mean of the ratings one of 1.10.
    assert gcmc.main(["--steps", "200"]) < 0.7


def test_training_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    words = ["--rows", "500", "--batch-size", "16", "--checkpoint"]
    dlrm.main([*words, str(tmp_path / "whole.pth"), "--steps", "5"])
    dlrm.main([*words, str(tmp_path / "parts.pth"), "--steps", "2"])
    dlrm.main([*words, str(tmp_path / "parts.pth"), "--steps", "5"])
    whole, parts = (metaop.load(tmp_path / f"{name}.pth") for name in ("whole", "parts"))
    # The first step after reading is a program of its own, which may round in another order.
    np.testing.assert_allclose(whole["history"]["loss"], parts["history"]["loss"], rtol=1e-6)
