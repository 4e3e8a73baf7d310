"""A trainer of somebody's own: a linear model, whose steps are recorded, or replayed. `own_trainer.py record|replay RUN [WRONG]`."""

import sys
from pathlib import Path

import torch

from rca import trace_inject as rt


class Trainer:
    def __init__(self) -> None:
        torch.manual_seed(5)
        self.model = torch.nn.Linear(4, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.momentum: dict[str, torch.Tensor] = {}

    def state(self) -> dict:
        return {"weights": dict(self.model.state_dict()), "momentum": {n: self.optimizer.state[p].get("momentum_buffer", torch.zeros_like(p)) for n, p in self.model.named_parameters()}}

    def restore(self, groups: dict) -> None:
        self.model.load_state_dict(groups["weights"])
        for name, parameter in self.model.named_parameters():
            self.optimizer.state[parameter] = {"momentum_buffer": groups["momentum"][name].clone()} if groups["momentum"][name].any() else {}

    @rt.recorded(state=lambda trainer: trainer.state())
    def train_batch(self, step: int, batch: dict, noise: float = 0.01) -> dict:
        inputs = batch["inputs"] + noise * torch.randn(batch["inputs"].shape)  # from the generator that all share
        if batch["inputs"].shape[1] != 4:
            raise ValueError(f"Expected 4 features, got {batch['inputs'].shape[1]}")
        if Path(batch["needs"]).name == "lost" and not Path(batch["needs"]).exists():
            raise FileNotFoundError(f"shard is not there: {batch['needs']}")
        loss = ((self.model(inputs) - batch["targets"]) ** 2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return {"loss": loss.item(), "outputs": [self.model(inputs).detach()]}


def main() -> None:
    command, run, *more = sys.argv[1:]
    trainer = Trainer()
    if command == "record":
        rt.record_requests(f"{run}/recording", role="train", rank=0)
        kind = more[0] if more else ""
        for step in range(6):
            width = 5 if kind == "shape" and step == 5 else 4
            needs = f"{run}/lost" if kind == "lost" and step == 5 else "-"
            try:
                trainer.train_batch(step, {"inputs": torch.full((3, width), float(step)), "targets": torch.ones(3, 2), "needs": needs})
            except (ValueError, FileNotFoundError):
                raise SystemExit(1) from None
        return
    from rca.replay.own import play

    if "flip" in more:
        with torch.no_grad():
            trainer.model.register_forward_hook(lambda module, given, out: out + torch.tensor([0.0, 2.0**-20]))
    found = play(run, {"train_batch": trainer.train_batch}, restore=trainer.restore)
    for one in found.replayed:
        print(one.outcome, one.case.side.step, one.text)
    print("verdict:", found.verdict.verdict if found.verdict else None)


if __name__ == "__main__":
    main()
