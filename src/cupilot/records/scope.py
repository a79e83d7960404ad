"""What a kernel that is right for its task was found to hold for beside it."""

from __future__ import annotations

from dataclasses import dataclass

TASK, VALUES, ANY_SHAPE = "task", "values", "any-shape"
REQUIREMENTS = (TASK, VALUES, ANY_SHAPE)
"""What a kernel can be asked for: right for the task, right on special values too, right for other shapes too."""
SEARCH_REQUIREMENTS = (TASK, VALUES)

EVERY_SHAPE, ONE_SHAPE = "any shape", "this shape only"


@dataclass(frozen=True)
class Difference:
    """Inputs or shapes on which a kernel does not do what PyTorch does, and how that was seen."""

    what: str
    evidence: str


@dataclass(frozen=True)
class Scope:
    """Found out by trying, not promised.

    ``shapes`` is `EVERY_SHAPE`, the sizes that were served, `ONE_SHAPE`, or empty where no other shape could be tried;
    ``other_shapes`` are those at which it failed.  ``values`` are the special kinds of inputs (wide range, denormal
    numbers, NaN, infinity) on which it differs from PyTorch.  ``basis`` says which runs the verdict on the task's own
    shape rests on.
    """

    shapes: str = ""
    other_shapes: tuple[Difference, ...] = ()
    values: tuple[Difference, ...] = ()
    basis: str = ""

    def unmet(self, requirements: tuple[str, ...]) -> Difference | None:
        """The first difference that the requirements do not allow."""
        if VALUES in requirements and self.values:
            return self.values[0]
        if ANY_SHAPE in requirements and self.shapes not in ("", EVERY_SHAPE):
            return self.other_shapes[0] if self.other_shapes else Difference("other shapes", self.shapes)
        return None

    def __str__(self) -> str:
        shapes = self.shapes or "no other shape could be tried"
        kinds = " and ".join(difference.what for difference in self.values)
        return f"{shapes}; " + (f"not as PyTorch on {kinds} inputs" if kinds else "special values as PyTorch")
