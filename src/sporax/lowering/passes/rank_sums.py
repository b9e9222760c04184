"""``AllReduce`` in a step that a plan shards: a sum over ranks of what each has computed of its slices.

Problem: in MindSpore every rank sees its slices of a gradient. Programs add up the squares of these and combine the numbers of
all ranks by ``AllReduce``; here the step is one program of whole tensors.

Method: a sum over ranks is linear. It moves back through additions, conversions and products with numbers, to the tensors whose
elements are added up. A mark says there that every element counts as often as ranks of the group have it, which the plan knows. A
number that does not come from gradients is the same on all ranks, and so is a flag: it counts once for each of them.
"""

from __future__ import annotations

from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var

from sporax.base.errors import SporaxRuntimeError
from sporax.ir.graph import IDENTITIES
from sporax.ir.marks import GradientMark, RankSumMark
from sporax.lowering.marks.mark_primitive import mark_p
from sporax.lowering.passes.pass_order import flat_for_plan
from sporax.lowering.rewriter import Atom, JaxprRewriter, aval_of, bodies_of, needed, with_bodies
from sporax.planner.rules.elementwise import ALL_TOGETHER, ONE_OPERAND, PLAIN

_MORE = ("mul", "div", "convert_element_type", "select_n", "clamp")
_ONE_BY_ONE = frozenset({*PLAIN, *ALL_TOGETHER, *ONE_OPERAND, *IDENTITIES, *_MORE})
_LINEAR = frozenset(
    """add add_any sub neg concatenate stack convert_element_type reshape squeeze expand_dims broadcast_in_dim copy
    reduce_sum""".split()
)
"""Primitives that are linear in all operands together."""
_PRODUCTS = frozenset({"mul", "div", "dot_general"})
"""Primitives that are linear in one operand, here the first of two that come from gradients."""


def with_rank_sums(program: ClosedJaxpr, stage_size: int, num_stages: int) -> ClosedJaxpr:
    """The program with the marks of its sums over ranks at what is added up.

    Args:
        stage_size: devices of a pipeline stage.
        num_stages: pipeline stages; each has gradients of its own.

    Raises:
        SporaxRuntimeError: a number is computed from gradients in another way, so that it cannot be computed from whole tensors.
    """
    return _Mover(flat_for_plan(program), stage_size, num_stages).run()


class _Mover(JaxprRewriter):
    """Moves the marks of a program.

    Attributes:
        made: by value the equation that makes it.
        sliced: the values that come from gradients.
        refused: why a sum cannot be computed, by its result.
    """

    def __init__(self, program: ClosedJaxpr, stage_size: int, num_stages: int, is_branch: bool = False) -> None:
        super().__init__(program)
        self.stage_size, self.num_stages = stage_size, num_stages
        self.made: dict[Var, JaxprEqn] = {}
        self.refused: dict[Var, SporaxRuntimeError] = {}
        # What a branch is handed may come from gradients.
        self.sliced: set[Atom] = set(program.jaxpr.invars if is_branch else ())

    def run(self) -> ClosedJaxpr:
        """The new program."""
        self.walk()
        self.eqns = needed(self.eqns, [self.read(atom) for atom in self.program.jaxpr.outvars])
        # Of sums of sums only the last is requested, so that the others may be impossible.
        for eqn in self.eqns:
            if eqn.primitive is mark_p and eqn.outvars[0] in self.refused:
                raise self.refused[eqn.outvars[0]]
        return self.finish()

    def visit(self, eqn: JaxprEqn) -> None:
        """Write an equation; in place of a sum over ranks, one of marked terms."""
        self.made.update(dict.fromkeys(eqn.outvars, eqn))
        self.note(eqn)
        mark = eqn.params.get("mark")
        if any(map(_has_rank_sums, bodies_of(eqn))):
            is_branch = eqn.primitive.name != "scan"
            eqn = with_bodies(
                eqn, lambda body: _Mover(flat_for_plan(body), self.stage_size, self.num_stages, is_branch).run()
            )
        elif isinstance(mark, RankSumMark):
            try:
                self.rename(eqn.outvars, [self.combined(eqn.invars[0], mark)])
                return
            except SporaxRuntimeError as error:
                self.refused[eqn.outvars[0]] = error
        self.keep(eqn)

    def note(self, eqn: JaxprEqn) -> None:
        """Note which results of an equation come from gradients; one element and a flag are the same on all ranks."""
        mark = eqn.params.get("mark")
        if isinstance(mark, GradientMark):
            self.sliced.update(var for var in eqn.outvars if aval_of(var).size > 1)
        elif isinstance(mark, RankSumMark) and len(mark.ranks) == self.stage_size * self.num_stages:
            return
        elif str(eqn.primitive.name) in IDENTITIES:
            self.sliced.update(new for old, new in zip(eqn.invars, eqn.outvars, strict=True) if self.is_sliced(old))
        elif any(map(self.is_sliced, eqn.invars)):
            self.sliced.update(var for var in eqn.outvars if aval_of(var).size > 1 or aval_of(var).dtype != bool)

    def combined(self, number: Atom, mark: RankSumMark) -> Atom:
        """What the ranks have together of a number."""
        if aval_of(number).size != 1:
            raise _refusal(f"it has the shape {aval_of(number).shape}")
        if mark.op == "sum":
            return self.total(number, mark.ranks)
        if self.is_sliced(number):
            raise _refusal(f"'op' is '{mark.op}'")
        own, count = self.read(number), len(mark.ranks)
        return self.emit(lambda x: x**count, own)[0] if mark.op == "prod" else own

    def total(self, value: Atom, ranks: tuple[int, ...]) -> Atom:
        """The sum over ranks of a value, written of marked terms."""
        if isinstance(value, Literal) or not self.is_sliced(value):
            return self.emit(lambda x: x * len(ranks), self.read(value))[0]
        eqn = self.made.get(value)
        if (names := self.gradients_in(value)) is not None:
            mark = RankSumMark("sum", self.of_stage(ranks), names)
            return self.identity(mark_p, [self.read(value)], eqn or self.program.jaxpr.eqns[0], mark=mark)[0]
        if eqn is None:
            raise _refusal("a branch has it from outside")
        name = str(eqn.primitive.name)
        if name in IDENTITIES:
            inner = eqn.params.get("mark")
            more = inner.ranks if isinstance(inner, RankSumMark) else (0,)
            # Each rank of the outer group has the sum of a group of its own.
            return self.total(eqn.invars[eqn.outvars.index(value)], tuple(a + b for a in ranks for b in more))
        if name in _LINEAR:
            return self.write(eqn, [self.total(operand, ranks) for operand in eqn.invars])[0]
        return self.product(eqn, ranks)

    def product(self, eqn: JaxprEqn, ranks: tuple[int, ...]) -> Atom:
        """The sum over ranks of a product, of which one factor alone comes from gradients, or that is of slices."""
        name = str(eqn.primitive.name)
        place, *others = (place for place, operand in enumerate(eqn.invars) if self.is_sliced(operand))
        if name not in _PRODUCTS or (name == "div" and place) or (others and not self.gradients_in(eqn.invars[place])):
            raise _refusal(f"'{name}' has made it")
        operands = [self.total(atom, ranks) if at == place else self.read(atom) for at, atom in enumerate(eqn.invars)]
        return self.write(eqn, operands)[0]

    def is_sliced(self, value: Atom) -> bool:
        """Whether a value comes from gradients."""
        return not isinstance(value, Literal) and value in self.sliced

    def gradients_in(self, value: Atom) -> tuple[str, ...] | None:
        """The Parameters of whose gradients a value is made element by element; None if it is not."""
        if isinstance(value, Literal) or not self.is_sliced(value) or aval_of(value).size == 1:
            return None
        eqn = self.made.get(value)
        if eqn is None:
            return ()
        place = eqn.outvars.index(value)
        if isinstance(eqn.params.get("mark"), GradientMark):
            return (eqn.params["mark"].parameters[place],)
        name = str(eqn.primitive.name)
        sources = [eqn.invars[place]] if name in IDENTITIES else list(filter(self.is_sliced, eqn.invars))
        found = list(map(self.gradients_in, sources))
        if None in found or name not in _ONE_BY_ONE:
            return None
        return tuple(dict.fromkeys(name for names in found for name in names or ()))

    def of_stage(self, ranks: tuple[int, ...]) -> tuple[int, ...]:
        """The ranks of a group on each stage, counted from its first."""
        stages = {rank // self.stage_size for rank in ranks}
        own = tuple(rank for rank in ranks if rank < self.stage_size)
        if len(set(ranks)) < len(ranks) or len(stages) < self.num_stages or len(own) * self.num_stages != len(ranks):
            raise _refusal(f"with the groups around it the ranks are {list(ranks)}")
        return own


def _has_rank_sums(body: Jaxpr) -> bool:
    return any(
        isinstance(eqn.params.get("mark"), RankSumMark) or any(map(_has_rank_sums, bodies_of(eqn))) for eqn in body.eqns
    )


def _refusal(why: str) -> SporaxRuntimeError:
    return SporaxRuntimeError(
        "For 'AllReduce', in a step that a plan shards the input must be one number: a sum of elements of gradients (of squares, "
        "say, also divided by numbers and added to others) over ranks that have all slices of them, or a number that "
        f"does not come from gradients, but {why}. Move other operators behind AllReduce."
    )
