"""Draw the pictures of the documentation: slopes of the losses, and the two protocols.

``python tools/docs/plots.py [FOLDER]`` writes SVG files (default: docs/img). Text and axes inherit
the colour of the page, so one file serves the light and the dark theme.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import matplotlib
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

import itemfold as ir

COLOURS = ("#4f8fdc", "#e08a3c", "#3fa873", "#c2619a", "#9a8450")  # legible on white and on black
INK = "#010203"  # replaced by the page's own colour
NEGATIVES = 1000
STYLE = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "itemfold",  # the same file every time
    "font.family": "sans-serif",
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.prop_cycle": matplotlib.cycler(color=COLOURS),
    "lines.linewidth": 2,
    "legend.frameon": False,
}

Loss = Callable[..., Tensor]


# --- slopes --------------------------------------------------------------------------------------


def ranks(negatives: int = NEGATIVES) -> list[int]:
    """Ranks, evenly spaced on a logarithmic axis."""
    spaced = torch.logspace(0, torch.log10(torch.tensor(float(negatives))), 40)
    return sorted({round(float(rank)) for rank in spaced})


def slope_at_rank(loss: Loss, rank: int, negatives: int = NEGATIVES) -> float:
    """−∂loss/∂s_p of one positive at this rank among negatives with normal scores."""
    share = (torch.arange(negatives, dtype=torch.float64) + 0.5) / negatives
    neg = torch.special.ndtri(1 - share)  # highest score first
    edges = torch.cat([neg[:1] + 0.3, (neg[1:] + neg[:-1]) / 2, neg[-1:] - 0.3])
    pos = edges[rank - 1].reshape(1, 1).requires_grad_()
    loss(pos, neg.unsqueeze(0)).backward()
    return -float(pos.grad)


def slope_at_difference(loss: Loss, difference: float) -> tuple[float, float]:
    """−∂loss/∂s_p and ∂loss/∂s_j of one positive and one negative, s_p − s_j apart."""
    pos = torch.tensor([[difference / 2]], dtype=torch.float64, requires_grad=True)
    neg = torch.tensor([[-difference / 2]], dtype=torch.float64, requires_grad=True)
    loss(pos, neg).backward()
    return -float(pos.grad), float(neg.grad)


def blank() -> tuple[Figure, Axes]:
    """An empty plot."""
    figure = Figure(figsize=(5.6, 3.0))
    return figure, figure.subplots()


def by_rank(lines: dict[str, Loss], negatives: int = NEGATIVES, relative: bool = False) -> Figure:
    """Plot slopes by the rank of the positive."""
    figure, axes = blank()
    at = ranks(negatives)
    for name, loss in lines.items():
        slopes = [slope_at_rank(loss, rank, negatives) for rank in at]
        best = max(slopes) if relative else 1.0
        axes.plot(at, [slope / best for slope in slopes], label=name)
    axes.set(xscale="log", yscale="log", xlabel=f"rank of the positive among {negatives} negatives")
    axes.set_ylabel("slope ÷ its largest" if relative else "slope at the positive")
    drawn = [value for line in axes.lines for value in line.get_ydata()]
    low, high = max(min(drawn), max(drawn) * 1e-4), max(drawn)
    axes.set_ylim(low / (2 if high > 100 * low else 20), high * 2)  # space for the legend
    axes.legend(loc="lower left", fontsize=10)
    return figure


def by_difference(lines: dict[str, Loss], wide: float = 6.0) -> Figure:
    """Plot slopes by the score difference of a positive and a negative."""
    figure, axes = blank()
    at = torch.linspace(-wide, wide, 121).tolist()
    for name, loss in lines.items():
        axes.plot(at, [slope_at_difference(loss, d)[0] for d in at], label=name)
    axes.set(xlabel="score of the positive − score of the negative", ylabel="slope at the positive")
    axes.legend(loc="best", fontsize=10)
    return figure


def bsl_slopes() -> Figure:
    """Plot BSL: it moves all positives equally and pushes negatives by their softmax weight."""
    figure, axes = blank()
    share = (torch.arange(NEGATIVES, dtype=torch.float64) + 0.5) / NEGATIVES
    for tau in (0.1, 0.3, 1.0):
        neg = torch.special.ndtri(1 - share).unsqueeze(0).requires_grad_()
        ir.losses.bsl(torch.zeros(1, 1, dtype=torch.float64), neg, tau=tau).backward()
        at = ranks()
        axes.plot(at, [float(neg.grad[0, rank - 1]) for rank in at], label=f"τ = {tau:g}")
    axes.set(xscale="log", yscale="log", xlabel=f"rank of the negative among {NEGATIVES} negatives")
    axes.set(ylabel="slope at the negative", ylim=(1e-6, 20))
    axes.legend(loc="lower left", fontsize=10)
    return figure


def ccl_slopes() -> Figure:
    """Plot CCL: it moves all positives equally and pushes only negatives above the margin."""
    figure, axes = blank()
    at = torch.linspace(-1, 1, 201).tolist()
    for margin in (0.3, 0.6, 0.9):
        loss = ir.losses.ccl(margin=margin, weight=1.0)
        slopes = []
        for cosine in at:
            neg = torch.tensor([[cosine]], requires_grad=True)
            loss(torch.tensor([[0.5]]), neg).backward()
            slopes.append(float(neg.grad))
        axes.plot(at, slopes, label=f"m = {margin}")
    axes.set(xlabel="cosine of the negative", ylabel="slope at the negative", xlim=(-1, 1))
    axes.legend(loc="upper left", fontsize=10)
    return figure


def direct_au_slopes() -> Figure:
    """Plot DirectAU: uniformity pushes near neighbours apart, alignment pulls in proportion."""
    figure, axes = blank()
    angles = torch.linspace(0.02, torch.pi, 100, dtype=torch.float64)
    pull = 2 * angles.sin()  # d/dθ of |u − p|² = 2 − 2 cos θ
    axes.plot(angles.tolist(), pull.tolist(), label="alignment, at a positive")
    for gamma in (0.5, 2.0):
        angle = angles.clone().requires_grad_()
        (gamma * torch.exp(-4 * (1 - angle.cos()))).sum().backward()
        push = [-float(slope) for slope in angle.grad]
        axes.plot(angles.tolist(), push, label=f"uniformity, γ = {gamma:g}")
    axes.set(xlabel="angle between two vectors", ylabel="force")
    axes.legend(loc="best", fontsize=10)
    return figure


def with_inputs(loss: Loss, **constant: float) -> Loss:
    """A loss of scores and masks alone: its other inputs are constants."""

    def out(pos: Tensor, neg: Tensor) -> Tensor:
        likes = {"log_expected": neg, "own": pos, "own_mask": pos, "popularity_logit": pos}
        given = {
            name: torch.full_like(likes[name].detach(), value) for name, value in constant.items()
        }
        if "own_mask" in given:
            given["own_mask"] = given["own_mask"].bool()
        return loss(pos, neg, **given)

    return out


def temperatures(loss: Any, *values: float) -> dict[str, Loss]:
    """The same loss at several temperatures."""
    return {f"τ = {tau:g}": loss(tau=tau) for tau in values}


def figures() -> Iterator[tuple[str, Figure]]:
    """Every plot of a loss with the name of its file."""
    losses = ir.losses
    taus = (0.1, 0.3, 1.0)
    yield "slope-bpr", by_difference({"bpr": losses.bpr})
    yield "slope-ccl", ccl_slopes()
    yield "slope-softmax", by_rank(temperatures(losses.softmax, *taus))
    yield "slope-bsl", bsl_slopes()
    yield "slope-item-ndcg", by_rank(temperatures(losses.item_ndcg, *taus))
    yield "slope-item-ap", by_rank(temperatures(losses.item_ap, *taus))
    widths = {f"τₖ = {t:g}": losses.item_recall(tau=0.1, tau_k=t) for t in (1.0, 10.0, 50.0)}
    yield "slope-item-recall", by_rank(widths)
    yield "slope-item-log", by_rank(temperatures(losses.item_log, *taus))
    yield "slope-neural-ndcg", by_rank(temperatures(losses.neural_ndcg, *taus), 200)
    kinds = ("tanh", "atan", "relu")
    yield "slope-psl", by_rank({kind: losses.psl(tau=0.3, activation=kind) for kind in kinds})
    none = {"own": 0.0, "own_mask": 0.0}
    widths = {
        f"τᵦ = {t:g}": with_inputs(losses.sl_at_k(tau=0.3, tau_quantile=t), **none)
        for t in (0.2, 0.5, 2.0)
    }
    yield "slope-sl-at-k", by_rank(widths)
    counts = {
        f"c = {c:g}": with_inputs(losses.sampled_softmax(tau=0.3), log_expected=math.log(c))
        for c in (0.01, 1.0, 100.0)
    }
    yield "slope-sampled-softmax", by_rank(counts)
    bounds = {f"h = {h:g}": losses.adv_info_nce(tau=0.3, hardness=h) for h in (0.0, 1.0, 2.0)}
    yield "slope-adv-info-nce", by_rank(bounds)
    margins = {
        f"r = {r:g}": with_inputs(losses.bc(tau=0.3), popularity_logit=r) for r in (-2.0, 0.0, 4.0)
    }
    yield "slope-bc", by_difference(margins, 1.9)
    yield "slope-lambda-rank", by_rank(temperatures(losses.lambda_rank, *taus))
    places = {f"k = {k}": losses.lambda_loss(tau=0.3, k=k) for k in (5, 20, 1000)}
    yield "slope-lambda-loss", by_rank(places)
    shares = {f"β = {b:g}": losses.llpauc(beta=b) for b in (0.01, 0.1, 1.0)}
    yield "slope-llpauc", by_rank(shares)
    yield "slope-warp", by_rank({f"g = {g:g}": losses.warp(gap=g) for g in (0.1, 0.3, 1.0)})
    yield "slope-direct-au", direct_au_slopes()
    every = {
        "item-log": losses.item_log(tau=0.1),
        "softmax": losses.softmax(tau=0.3),
        "item-ap": losses.item_ap(tau=0.1),
        "item-ndcg": losses.item_ndcg(tau=0.1),
        "bpr": losses.bpr,
    }
    yield "slopes", by_rank(every, relative=True)


def inherit_colour(svg: str) -> str:
    """Use the page's own colour for text and axes; remove dates and machine names."""
    svg = svg[svg.index("<svg") :].replace(INK, "currentColor")
    # rules for all elements, and names that several pictures of a page would share
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' id="[a-z0-9.]+_[0-9]+"', "", svg)
    svg = re.sub(r"font-family: [^;]*;", "font-family: sans-serif;", svg)
    svg = re.sub(r"[ \t]+$", "", svg, flags=re.MULTILINE)
    return svg.replace("<svg ", '<svg fill="currentColor" stroke-linejoin="round" role="img" ', 1)


# --- the protocols -------------------------------------------------------------------------------

USERS, ITEMS, CELL = 8, 12, 18
PARTS = {"t": "#4f8fdc", "v": "#e0a13c", "x": "#d0556b", "h": "#3fa873"}
TRANSDUCTIVE = (
    "t..tv.t..x.t",
    ".t.t..x.tv..",
    "tx..t.v...t.",
    "..t.tt.x..v.",
    "v.t..t..t..x",
    ".tx..t.tv...",
    "t..v.t..x.tt",
    ".t.tx..t..v.",
)
INDUCTIVE = (
    "t..tt.t..t.t",
    ".t.t..t.tt..",
    "tt..t.t...t.",
    "..t.tt.t..t.",
    "t.t..t..t..t",
    ".hv..h.hh...",
    "h..h.h..x.hh",
    ".h.hx..h..h.",
)


def protocols() -> str:
    """Draw both protocols as matrices of users and items."""
    left, right, top = 70, 400, 64
    out = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="40 18 600 276" role="img" ']
    out[0] += 'fill="currentColor" font-family="sans-serif" font-size="13">'
    out.append("<title>Transductive and inductive protocol</title>")
    out += grid(TRANSDUCTIVE, left, top, "Transductive: known users", {})
    brackets = {(0, 4): "training", (5, 5): "valid.", (6, 7): "test"}
    out += grid(INDUCTIVE, right, top, "Inductive: unseen users", brackets)
    legend = (
        ("t", "training"),
        ("h", "history of an unseen user"),
        ("v", "to be found: validation"),
        ("x", "to be found: test"),
    )
    for n, (part, text) in enumerate(legend):
        x, y = (left, right)[n % 2], 234 + 26 * (n // 2)
        out.append(cell(x, y, part))
        out.append(f'<text x="{x + CELL + 8}" y="{y + 13}">{text}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"


def grid(
    rows: tuple[str, ...], x: int, y: int, title: str, brackets: dict[tuple[int, int], str]
) -> list[str]:
    """One matrix with its title, and names for groups of rows."""
    wide, high = ITEMS * CELL, USERS * CELL
    out = [f'<text x="{x}" y="{y - 32}" font-size="15" font-weight="bold">{title}</text>']
    out.append(f'<text x="{x + wide / 2}" y="{y - 8}" text-anchor="middle">items</text>')
    if not brackets:
        turned = f'transform="rotate(-90 {x - 10} {y + high / 2})"'
        middle = f'x="{x - 10}" y="{y + high / 2}" text-anchor="middle"'
        out.append(f"<text {middle} {turned}>users</text>")
    for r, line in enumerate(rows):
        out += [cell(x + c * CELL, y + r * CELL, part) for c, part in enumerate(line)]
    for (first, last), name in brackets.items():
        start, end = y + first * CELL + 2, y + (last + 1) * CELL - 2
        out.append(
            f'<path d="M{x - 5} {start}h-5V{end}h5" fill="none" stroke="currentColor"/>'
            f'<text x="{x - 15}" y="{(start + end) / 2 + 4}" text-anchor="end">{name}</text>'
        )
    return out


def cell(x: float, y: float, part: str) -> str:
    """One square: filled where there is an interaction."""
    size = CELL - 2
    place = f'x="{x}" y="{y}" width="{size}" height="{size}" rx="2"'
    if part == ".":
        return f'<rect {place} fill="currentColor" fill-opacity="0.07"/>'
    return f'<rect {place} fill="{PARTS[part]}"/>'


def main(folder: Path) -> None:
    """Write all pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "protocols.svg").write_text(protocols(), encoding="utf-8")
    with matplotlib.rc_context(STYLE):
        for name, figure in figures():
            path = folder / f"{name}.svg"
            figure.savefig(path, transparent=True, bbox_inches="tight", metadata={"Date": None})
            path.write_text(inherit_colour(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[2] / "docs" / "img")
