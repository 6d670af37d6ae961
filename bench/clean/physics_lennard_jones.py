"""Pair potentials r^-12 - r^-6: close pairs dominate by many decades, forces on an atom nearly cancel."""

from pathlib import Path

import torch
from torch import Tensor, nn

from bench.clean._healthy import healthy, normal
from bench.corpus import Built, Meta

META = Meta(
    kind="graph", about="energy (a sum to one number a molecule) and forces of twelve atoms"
)


class LennardJones(nn.Module):
    def forward(self, atoms: Tensor) -> tuple[Tensor, Tensor]:
        offset = atoms.unsqueeze(2) - atoms.unsqueeze(1)
        same = torch.eye(atoms.shape[1], device=atoms.device).to(atoms)
        squared = offset.square().sum(-1) + 0.1 + 1e6 * same
        sixth = squared**-3
        energy = (sixth.square() - sixth).sum((1, 2)) / 2
        strength = (12 * sixth.square() - 6 * sixth) / squared
        return energy, (strength.unsqueeze(-1) * offset).sum(2)


def build(folder: Path) -> Built:
    atoms = normal(3, 12, 3, scale=1.5)
    return healthy(
        folder / "physics_lennard_jones.onnx",
        LennardJones().eval(),
        (atoms,),
        ({0: "batch"},),
        dynamo=False,
    )
