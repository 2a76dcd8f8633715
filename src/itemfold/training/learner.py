"""One step of gradient descent: model, optimizer, average of the weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from itemfold import ranks
from itemfold.data.splitting.split import Split
from itemfold.environment import pick_device, tensor_cores
from itemfold.graph.graph import Graph
from itemfold.models.base import Model
from itemfold.sampling.batches import Batches
from itemfold.settings.resolve import Settings
from itemfold.training.adam import Adam
from itemfold.training.cuda_graph import Step, captured
from itemfold.training.kept_memory import keep_memory
from itemfold.training.loss_inputs import LossInputs
from itemfold.training.objective import objective
from itemfold.training.weight_average import WeightAverage


class Learner:
    """A model on its device with all state that changes from step to step."""

    def __init__(
        self, model: Model, settings: Settings, split: Split, *, initialise: bool = True
    ) -> None:
        """Set up new weights for the training part of ``split``.

        ``initialise=False`` skips weights that the model computes from the graph, because others
        will be loaded.
        """
        self.config = config = settings.train
        self.loss, self.sampler = settings.make_loss(), settings.make_sampler()
        self.loss_inputs = LossInputs()
        self.device = pick_device(config.device)
        on_gpu = self.device.type == "cuda"
        self.model, weights = model, torch.Generator().manual_seed(config.seed)
        self.model.setup(split.train, inductive=split.protocol == "inductive", generator=weights)
        self.model.to(self.device)
        self.graph = Graph.from_csr(split.train, self.device)
        if initialise:
            self.model.initialise(self.graph, weights)
        self.coarse = on_gpu and config.precision == "auto"
        half = config.precision == "auto" and (on_gpu or self.graph.blocked)
        # the graph over which a training step passes messages
        self.step_graph = replace(self.graph, half=True) if half else self.graph
        self.generator = torch.Generator(self.device).manual_seed(config.seed)
        if self.model.kind.has_lists:
            self.sampler.prepare(split.train, self.device)
        longest = max(int(self.graph.history_length.max()), 1)
        positives = min(config.positives, longest)  # no user has more
        self.batches = Batches(self.graph, config.batch_by, config.batch, positives)
        groups = self.model.parameter_groups(config.lr)
        self.rates = [float(group["lr"]) for group in groups]
        if on_gpu and config.lr_plateau < 1:  # a recorded step reads its rate from this memory
            for group in groups:
                group["lr"] = torch.tensor(group["lr"], device=self.device)
        self.optimizer = Adam(groups, fused=True, capturable=on_gpu)
        self.average = WeightAverage(self.model, config.ema_decay)

    def set_rate(self, factor: float) -> None:
        """Multiply the initial learning rates by a factor."""
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate * factor)
            else:
                group["lr"] = rate * factor

    def step(self, keys: Tensor) -> Tensor:
        """Take one step of Adam on the lists of these keys; returns the loss."""
        keep_memory()  # in each step, because another training may have ended in between
        self.optimizer.zero_grad(set_to_none=True)
        batch = self.batches.draw(keys, self.generator)
        with tensor_cores(self.coarse):
            value = objective(
                self.model,
                self.step_graph,
                batch,
                self.loss,
                self.sampler,
                self.config,
                self.generator,
                self.loss_inputs,
            )
            value.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.average.update()
        return value.detach()

    def recorded_step(self) -> Step:
        """`step`, on a GPU recorded as a CUDA graph.

        It is not recorded if ranks exchange sums or if steps differ.

        The graph refers to this learner, which must not refer back: the graph is then freed
        immediately, not by a garbage collection during the next recording.
        """
        if self.device.type != "cuda" or ranks.size() > 1 or not self.model.same_steps:
            return self.step
        keys = self.batches.epoch(torch.Generator(self.device))[0]  # only the shape matters
        return captured(self.step, keys, self.optimizer, self.generator, self.average.tensors)

    def epoch(self, step: Step) -> float:
        """Train on all batches of an epoch; returns the mean loss."""
        self.model.train()
        self.model.begin_epoch(self.step_graph, self.generator)
        losses = [step(keys) for keys in self.batches.epoch(self.generator)]
        return float(torch.stack(losses).mean())

    def tensors(self) -> dict[str, Any]:
        """All state needed to resume, as stored in ``state.pt``; the columns of this rank."""
        return {
            "model": dict(self.model.named_parameters()),
            "optimizer": self.optimizer.state_dict(),
            "generator": self.generator.get_state(),
            "average": self.average.tensors,
        }

    def load(self, tensors: dict[str, Any]) -> None:
        """Continue from saved `tensors`."""
        self.model.load_state_dict(tensors["model"], strict=False)
        own = [group["lr"] for group in self.optimizer.param_groups]
        self.optimizer.load_state_dict(tensors["optimizer"])
        for group, rate in zip(self.optimizer.param_groups, own, strict=True):
            group["lr"] = rate  # a recorded step reads this tensor, and `set_rate` fills it
        self.generator.set_state(tensors["generator"])
        self.average.load(tensors["average"])
