"""RecVAE against torch's distributions, and its training in turns."""

import numpy as np
import pytest
import torch
from small import batch_of, random_matrix
from torch.distributions import Categorical, MixtureSameFamily, Normal

from itemfold.errors import ItemfoldError
from itemfold.graph.graph import Graph
from itemfold.models import RecVAE
from itemfold.models.recvae import log_prior

TRAIN = random_matrix(30, 20, 0.3)


def ready(**settings) -> tuple[RecVAE, Graph]:
    model = RecVAE(hidden=8, latent=3, **settings)
    model.setup(TRAIN, inductive=True, generator=torch.Generator().manual_seed(1))
    return model, Graph.from_csr(TRAIN)


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def naive_encoder(x, weights):
    """The encoder with torch's modules, row by row of its definition."""
    weights = [weight.detach() for weight in weights]
    layers = list(zip(weights[0:12:2], weights[1:12:2], strict=True))
    norms = list(zip(weights[12::2], weights[13::2], strict=True))
    hidden, current = [], x
    for (weight, bias), (scale, shift) in zip(layers[:-1], norms, strict=True):
        inner = current @ weight + bias + sum(hidden)
        inner = inner * torch.sigmoid(inner)
        centred = inner - inner.mean(1, keepdim=True)
        variance = centred.square().mean(1, keepdim=True)
        current = centred / (variance + 0.1).sqrt() * scale + shift
        hidden.append(current)
    return (current @ layers[-1][0] + layers[-1][1]).split(3, dim=1)


def test_the_prior_is_a_mixture_of_three_normals() -> None:
    z, mean, log_variance = torch.randn(3, 5, 4, generator=generator(0))
    means = torch.stack([torch.zeros_like(z), mean, torch.zeros_like(z)], -1)
    wide = torch.full_like(z, np.exp(5.0))
    spreads = torch.stack([torch.ones_like(z), (log_variance / 2).exp(), wide], -1)
    weights = torch.tensor([0.15, 0.75, 0.1]).expand(*z.shape, 3)
    mixture = MixtureSameFamily(Categorical(weights), Normal(means, spreads))
    torch.testing.assert_close(log_prior(z, mean, log_variance), mixture.log_prob(z))


def test_the_loss_equals_the_bound() -> None:
    model, graph = ready(dropout=0.0, gamma=0.02)
    for parameter in model.parameters():  # norms and biases are not at their start
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=generator(2))
    model.epochs.zero_()
    batch = batch_of(TRAIN)
    real = batch.mask.any(1)
    x = torch.from_numpy(TRAIN[batch.users[real].numpy()].toarray())
    unit = x / x.norm(dim=1, keepdim=True)
    mean, log_variance = naive_encoder(unit, model.encoder)
    old, old_log_variance = naive_encoder(unit, model.old_encoder)
    model.begin_epoch(graph, generator(0))
    loss = model.own_loss(graph, batch, generator(5))
    draw = generator(5)
    torch.rand(int(x.sum()), generator=draw)  # the draws of the dropout, which drops nothing
    z = mean + torch.randn(len(real), 3, generator=draw)[real] * (log_variance / 2).exp()
    gap = Normal(mean, (log_variance / 2).exp()).log_prob(z) - log_prior(z, old, old_log_variance)
    logits = z @ model.decoder[0] + model.decoder[1]
    bound = -(x * torch.log_softmax(logits, 1)).sum(1) + 0.02 * x.sum(1) * gap.sum(1)
    torch.testing.assert_close(loss, bound.mean())
    scores = model.scores(TRAIN[batch.users[real].numpy()], np.full(int(real.sum()), -1))
    torch.testing.assert_close(scores, (mean @ model.decoder[0] + model.decoder[1]).detach())


def test_encoder_and_decoder_take_turns() -> None:
    model, graph = ready()
    optimizer, batch, draws = (
        torch.optim.Adam(model.parameters(), 0.01),
        batch_of(TRAIN),
        generator(3),
    )

    def state():
        parts = model.encoder, model.decoder, model.old_encoder
        return [torch.cat([p.detach().flatten() for p in part]) for part in parts]

    for epoch in range(1, 9):
        before = state()
        model.begin_epoch(graph, draws)
        for _ in range(2):
            optimizer.zero_grad()
            model.own_loss(graph, batch, draws).backward()
            optimizer.step()
        after = state()
        changed = [not torch.equal(a, b) for a, b in zip(before, after, strict=True)]
        assert changed == ([False, True, True] if epoch % 4 == 0 else [True, False, False])
        if epoch % 4 == 0:
            assert torch.equal(after[2], before[0])  # the prior has the encoder of the turn


def test_settings_are_checked() -> None:
    with pytest.raises(ItemfoldError, match="'gamma' must be a number of at least 0, got -1"):
        RecVAE(gamma=-1)
    with pytest.raises(ItemfoldError, match="'dropout' must be at least 0 and below 1"):
        RecVAE(dropout=1.0)
