from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small import seeded
from torch import Tensor

from itemfold.errors import ItemfoldError
from itemfold.ops import pair_blocks
from itemfold.ops.pair_scores import pair_scores, row_scores, squared_lengths, take_rows


@pytest.fixture(autouse=True, scope="module", params=["one block", "blocks of two items"])
def _items_at_a_time(request: pytest.FixtureRequest) -> Iterator[None]:
    """All items at once, or grouped as in a large catalogue."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param != "one block":
            patch.setattr(pair_blocks, "LARGE", 0)
            patch.setattr(pair_blocks, "BITS", 1)
        yield


def gathered(users: Tensor, items: Tensor, index: Tensor) -> Tensor:
    """The plain way: one row per pair, multiplied and summed."""
    return (users.unsqueeze(1) * items[index]).sum(2)


def compare(users: Tensor, items: Tensor, index: Tensor) -> None:
    toward = torch.randn(index.shape, generator=torch.Generator().manual_seed(9))
    outcomes = []
    for score in (pair_scores, gathered):
        u, i = users.clone().requires_grad_(), items.clone().requires_grad_()
        value = score(u, i, index)
        outcomes.append((value, *torch.autograd.grad((value * toward).sum(), (u, i))))
    for ours, plain in zip(*outcomes, strict=True):
        assert ours.shape == plain.shape
        torch.testing.assert_close(ours, plain, rtol=1e-5, atol=1e-5)


@given(
    st.integers(1, 6), st.integers(1, 7), st.integers(1, 9), st.integers(1, 5), st.integers(0, 99)
)
def test_scores_and_gradients_equal_the_plain_gather(
    lists: int, length: int, n_items: int, dim: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    users = torch.randn(lists, dim, generator=generator)
    items = torch.randn(n_items, dim, generator=generator)
    compare(users, items, torch.randint(n_items, (lists, length), generator=generator))


@pytest.mark.parametrize(
    "index",
    [
        torch.zeros(3, 5, dtype=torch.int64),  # the first item repeatedly
        torch.full((3, 4), 6),  # the last one: items before it get no gradient
        torch.tensor([[2, 2, 5], [5, 2, 2], [2, 5, 5]]),
        torch.zeros(3, 0, dtype=torch.int64),  # lists without a pair
        torch.arange(3).unsqueeze(1),
    ],
)
def test_repeated_and_missing_items(index: Tensor) -> None:
    generator = torch.Generator().manual_seed(0)
    compare(torch.randn(3, 4, generator=generator), torch.randn(7, 4, generator=generator), index)


def test_one_list_and_columns_of_a_wider_table() -> None:
    generator = torch.Generator().manual_seed(0)
    wide = torch.randn(7, 10, generator=generator)
    compare(torch.randn(1, 4, generator=generator), wide[:, 2:6], torch.tensor([[0, 6, 3, 3]]))


def test_only_the_requested_gradient_is_computed() -> None:
    generator = torch.Generator().manual_seed(0)
    users, items = (torch.randn(n, 4, generator=generator) for n in (3, 7))
    index = torch.tensor([[0, 1], [1, 1], [6, 0]])
    for wanted in (users, items):
        leaf = wanted.clone().requires_grad_()
        pair = (leaf, items) if wanted is users else (users, leaf)
        (found_grad,) = torch.autograd.grad(pair_scores(*pair, index).sum(), leaf)
        (naive,) = torch.autograd.grad(gathered(*pair, index).sum(), leaf)
        torch.testing.assert_close(found_grad, naive)


def test_lists_of_any_length() -> None:
    """An empty list, repeated items, and padding after the last list."""
    starts = torch.tensor([0, 3, 3, 7], dtype=torch.int32)
    index = torch.tensor([4, 0, 4, 1, 1, 2, 0, 5, 5], dtype=torch.int32)  # 5: padding
    owner = torch.tensor([0, 0, 0, 2, 2, 2, 2, 2, 2])
    users = torch.randn(3, 6, generator=torch.Generator().manual_seed(0)).requires_grad_()
    items = torch.randn(5, 6, generator=torch.Generator().manual_seed(1)).requires_grad_()
    toward = torch.randn(7, generator=torch.Generator().manual_seed(2))
    ours = row_scores(users, items, starts, index, owner)[:7]
    plain = (users[owner[:7]] * items[index[:7].long()]).sum(1)
    torch.testing.assert_close(ours, plain)
    wanted = torch.autograd.grad((plain * toward).sum(), (users, items))
    found = torch.autograd.grad((ours * toward).sum(), (users, items))
    torch.testing.assert_close(found, wanted)


def test_more_pairs_than_32_bits_can_number_are_refused() -> None:
    index = torch.zeros(1, 1, dtype=torch.int64).expand(2**16, 2**15)
    with pytest.raises(ItemfoldError, match=r"got 65,536 lists of 32,768 items: choose a smaller"):
        pair_scores(torch.zeros(1, 2).expand(2**16, 2), torch.zeros(1, 2), index)


def test_taken_rows_gather_their_gradient() -> None:
    table = torch.randn(5, 3).requires_grad_()
    index = torch.tensor([4, 0, 4])
    assert torch.equal(take_rows(table, index), table[index])
    (grad,) = torch.autograd.grad(take_rows(table, index).sum(), table)
    assert grad[:, 0].tolist() == [1, 0, 0, 0, 2]


def test_squared_lengths_and_their_gradient_are_those_of_autograd():
    table = torch.randn(50, 8, generator=seeded()).requires_grad_()
    weight = torch.randn(50, generator=seeded(1))
    (expected,) = torch.autograd.grad(table.square().sum(1) @ weight, table)
    lengths = squared_lengths(table)
    (found,) = torch.autograd.grad(lengths @ weight, table)
    assert torch.equal(lengths, table.square().sum(1))
    assert torch.equal(found, expected)  # bit for bit: doubling is exact
    assert torch.autograd.gradcheck(squared_lengths, table.detach().double().requires_grad_())
