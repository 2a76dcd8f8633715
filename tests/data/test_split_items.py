"""Whole items are held out, and nothing downstream can see what users did with them."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import itemfold as ir
from itemfold.data.interactions import IdMap, Interactions
from itemfold.data.splitting.splitters import split_items

DATA = ir.load("synthetic:users=80,items=90,interactions=1500")


def test_every_interaction_is_in_one_part_and_held_out_items_only_in_test() -> None:
    split = split_items(DATA, seed=3, test=0.2)
    new = set(split.new_items.ids.tolist())
    assert len(new) == round(0.2 * DATA.n_items)
    assert not new & set(split.item_ids.ids.tolist())
    ids = np.concatenate([split.item_ids.ids, split.new_items.ids])
    held = split.test.target.tocoo()
    found = {(split.test.ids[r], ids[c]) for r, c in zip(held.row, held.col, strict=True)}
    users, items = DATA.user_ids.ids[DATA.users], DATA.item_ids.ids[DATA.items]
    assert found == {(u, i) for u, i in zip(users, items, strict=True) if i in new}
    valid = split.valid.target.nnz
    assert split.train.nnz + valid + held.nnz == len(DATA)
    assert split.refit().train.nnz == split.train.nnz + valid


def changed(data: Interactions, split: ir.Split, seed: int) -> Interactions:
    """The data with other interactions of the held-out items."""
    is_new = split.new_items.index(data.item_ids.ids[data.items]) >= 0
    rng = np.random.default_rng(seed)
    return replace(data, users=np.where(is_new, rng.permutation(data.users), data.users))


@pytest.mark.parametrize("model", [ir.models.EASE(), ir.models.LightGCN(dim=8)], ids=str)
def test_interactions_of_held_out_items_change_nothing_but_the_test(model: ir.models.Model) -> None:
    split = split_items(DATA, seed=1)
    other = split_items(changed(DATA, split, 5), seed=1)
    assert other.new_items.ids.tolist() == split.new_items.ids.tolist()
    assert (other.test.target.shape != split.test.target.shape) or (
        (other.test.target != split.test.target).nnz
    )
    one, two = (
        ir.train(s, type(model)(**model.settings), epochs=2, eval_every=1, device="cpu")
        for s in (split, other)
    )
    assert one.metrics["valid"] == two.metrics["valid"]  # selection
    assert one.metrics["new_items"] == two.metrics["new_items"]  # the feature map
    for name, tensor in one.model.state_dict().items():  # graph and sampler
        assert tensor.equal(two.model.state_dict()[name]), name


def test_the_guard_finds_every_way_in() -> None:
    split = split_items(DATA, seed=1)
    known, new = split.item_ids, split.new_items
    mixed = IdMap(np.concatenate([new.ids[:-1], known.ids[:1]]))
    with pytest.raises(ir.LeakError, match=f"item {known.ids[0]} is also an item of the training"):
        replace(split, new_items=mixed).check()
    width = split.test.target.shape[1]
    wide = sp.csr_array((split.train.data, split.train.indices, split.train.indptr),
                        shape=(split.n_users, width))  # fmt: skip
    with pytest.raises(ir.LeakError):
        replace(split, train=wide).check()
    seen = split.test.history.tolil()
    free = np.flatnonzero(split.test.target.toarray()[0, split.n_items :] == 0)[0]
    seen[0, split.n_items + free] = 1
    with pytest.raises(ir.LeakError, match="in the history of a test user"):
        replace(split, test=replace(split.test, history=sp.csr_array(seen))).check()
    swapped = replace(split.test, target=split.test.history, history=split.test.target)
    with pytest.raises(ir.LeakError):
        replace(split, test=swapped).check()


def test_items_without_features_cannot_be_held_out() -> None:
    bare = replace(DATA, titles=None, genres=None)
    with pytest.raises(ir.ItemfoldError, match="needs item features"):
        split_items(bare)
    with pytest.raises(ir.ItemfoldError, match=r"'test' must be a fraction in \(0, 1\)"):
        split_items(DATA, test=0)
    with pytest.raises(ir.ItemfoldError, match="cold_start thins users"):
        ir.cold_start(split_items(DATA))
