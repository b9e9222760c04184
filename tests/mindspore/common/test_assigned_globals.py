"""What is looked through for assigned global names: the user's code, and no package that it uses."""

import jax

from sporax.mindspore import Tensor, nn, ops
from sporax.mindspore.common import _assigned_globals as assigned_globals


def test_packages_are_not_looked_through_wherever_they_lie(monkeypatch):
    """JAX may lie in the packages of the user, of the system, or of another environment."""
    assert assigned_globals._of_library(jax.__file__)
    net = nn.Dense(2, 2)

    def step(x):
        return ops.tanh(net(x)) + Tensor([1.0])

    assert list(assigned_globals._assigned(step)) == []
    monkeypatch.setattr(assigned_globals, "_of_library", lambda path: path.startswith(assigned_globals._LIBRARIES[0]))
    assert list(assigned_globals._assigned(step)) != []  # JAX's own, which would be met otherwise
