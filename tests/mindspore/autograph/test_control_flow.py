"""Python's control flow on tensors: compiled results equal those of plain Python, in values and in side effects."""

import gc
import traceback

import numpy as np
import pytest

import sporax.mindspore as ms
from sporax.mindspore import Tensor, nn, ops

X = Tensor(np.array([1.0, 2.0, 3.0], np.float32))
CASES = []


def case(*inputs):
    """Run the function in both ways on each of these inputs."""

    def add(function):
        CASES.extend(
            pytest.param(function, given, id=f"{function.__name__}-{number}") for number, given in enumerate(inputs)
        )
        return function

    return add


def assert_same(first, second, rtol=1e-6):
    if isinstance(first, tuple | list):
        assert len(first) == len(second)
        for one, two in zip(first, second, strict=True):
            assert_same(one, two, rtol)
    else:
        np.testing.assert_allclose(np.asarray(first), np.asarray(second), rtol=rtol)


def helper(x):
    if x.sum() > 100:
        return x * 0
    return x + 1


@case((X,), (X * 100,))
def a_helper_is_rewritten(x):
    return helper(x)


@case((X,), (-X,))
def if_else(x):
    if x.sum() > 0:
        y = x + 1
    else:
        y = x - 1
    return y


@case((X,), (-X,), (X * 50,))
def nested_ifs_with_returns(x):
    if x.sum() > 0:
        if x.sum() > 100:
            return x
        x = x + 2
    elif x[0] < -5:
        return x * 3
    x = x * 2
    return x


@case((X,), (X / 10,))
def a_break_in_a_written_out_loop(x):
    for k in [1.0, 2.0, 3.0, 4.0]:
        if x.sum() > 12:
            break
        x = x + k
    return x


@case((X, Tensor(5.0)), (X, Tensor(50.0)))
def continue_and_return_in_a_loop(x, limit):
    total = x * 0
    for k in range(6):
        if total.sum() > limit * 2:
            return total
        if x.sum() + k > 8:
            continue
        total = total + x
    return -total


@case((X,))
def a_long_counted_loop_with_break(x):
    i = 0
    for i in range(100):  # noqa: B007 - users write it so
        x = x * 1.1
        if x.sum() > 100:
            break
    return x, i


@case((X,), (X * 100,))
def while_on_a_tensor(x):
    steps = 0
    while x.sum() < 100:
        x = x * 2
        steps += 1
    return x, steps


@case((X,))
def while_true(x):
    count = 0
    while True:
        x = x * 2
        count += 1
        if x.sum() > 50:
            break
    return x, count


@case((X,), (X * 5,), (X * 100,))
def return_from_while(x):
    while x.sum() < 100:
        x = x * 2
        if x[0] > 6:
            return x * 0
    return x


@case((X, Tensor(3, ms.int32)))
def loops_in_loops(x, n):
    i = 0
    while i < n:
        j = 0
        while j < i:
            if j > 1:
                break
            x = x + j
            j = j + 1
        i = i + 1
    return x


@case((X, Tensor(4, ms.int32)))
def range_of_a_tensor(x, n):
    for i in range(1, n):
        x = x + i
    return x


@case((X,), (-X,))
def logic(x):
    total = x.sum()
    return not ((total > 1 and x[0] > 0) or x[1] < -1), 0 < total < 10, (total > 1) and x[0], total in (6.0, 1.0)


@case((X,), (-X,))
def conditional_expressions(x):
    return x if x.sum() > 0 else -x, [v * 2 if v > 1 else v for v in x]


@case((X,), (-X,))
def elements_set_in_branches(x):
    y = x * 1
    if x.sum() > 0:
        y[0] = 5
    for i in range(3):
        if y[i] > 2:
            y[i] = y[i] * 2
    return y


@case((X,), (-X,))
def lists_and_dicts_changed_in_branches(x):
    items, table = [x], {"a": x}
    if x.sum() > 0:
        items.append(x + 1)
        table["a"] = x * 3
    else:
        items.append(x - 1)
    return items, table["a"]


@case((X,))
def numbers_from_tensors(x):
    return int(x.sum()) + 1, float(x[0]), bool(x[0]), x.sum().item() * 2, max(x[0], x[1], 1.5), min(x[0], x[2])


@case((X,), (-X,))
def a_temporary_of_two_types(x):
    if x.sum() > 0:
        part = x.sum()
        y = x * part
    else:
        part = "negative"
        y = x
    return y


@case((X, Tensor(1)), (X, Tensor(-1)))
def lists_indexed_by_tensors(x, i):
    return [x, x * 2, x * 3][i], (5, 6, 7)[i]


@case((X,))
def a_long_loop_of_constants(x):
    n = Tensor(0)
    while n < 100:
        x = x + 1
        n = n + 1
    return x, n


@case((X,))
def extremes_of_a_vector(x):
    return max(x), min(x)


@case((X,), (-X,))
def the_common_part_of_lists(x):
    found = []
    for factor in range(3):
        found.append(x * factor)
        if (x * factor).sum() > 1:
            break
        found.extend([x])
    return found[0] + 1, found[:1]


@case((X,), (-X,))
def the_common_part_of_tuples(x):
    found = ()
    for factor in range(3):
        found = found + (x * factor,)
        if (x * factor).sum() > 1:
            break
        found += (x,)
    return found[0] + 1, found[:1]


@case((X,), (-X,))
def the_common_part_of_dicts(x):
    found, ordered = {"z": x, "a": x * 2}, {"z": x, "a": x}
    for factor in range(3):
        found[f"k{factor}"] = x * factor
        if (x * factor).sum() > 1:
            break
    if x[0] > 0:
        found["more"] = x
        found["z"], ordered["z"] = x * 5, x * 2
    else:
        found.update({"less": x})
    found["after"] = x + 3
    in_order = list(ordered) == ["z", "a"]
    return found["k0"], found["z"], found.get("a"), "k0" in found, found["after"], isinstance(found, dict), in_order


@case((X,), (-X,))
def the_common_part_of_containers_in_containers(x):
    table, pair = {"list": [], "x": x}, ([], {})
    for i in range(3):
        table["list"].append(x + i)
        for j in range(2):
            pair[0].append({"a": (x, [x * j])})
            pair[1][i] = x * j
            if x.sum() > j:
                break
        if x.sum() > 1 + i:
            break
    return table["list"][0], table["x"], pair[0][0]["a"][1][0], pair[1][0]


@case((X,), (-X,))
def the_first_elements_by_a_star(x):
    found, items = [x, x * 3], [x, x + 1, x + 2]
    for i in range(3):
        found.append(x + i)
        if x.sum() > 1 + i:
            break
    a, b, *rest = found
    c, *middle, d = items
    return a + b, rest[0], c, d, middle


@case((X,), (-X,))
def lists_that_grow_in_while(x):
    found, known, chained, none = [x], [], (x,), None
    while x.abs().sum() < 100:
        x = x * 2
        found.append(x)
        chained = (*chained, x)
    i = 0
    while i < 4:
        known.append(x + i)
        none = x if none is None else none + x
        i += 1
        if x.sum() > i:
            break
    return found[0], known[0], chained[0], none, x, i


@case((X,), (-X,))
def lists_after_a_loop_that_may_return(x):
    found = []
    for i in range(3):
        if x.sum() > 1 + i:
            return x * 10
        bound = x * i
        found.append(bound)
    return found[-1] + len(found) + bound


@case((X,), (-X,), (X * 100,))
def loops_with_else(x):
    for i in range(3):  # noqa: B007 - users write it so
        x = x + 1
        if x.sum() > 50:
            break
    else:
        x = x * 10
    while x.abs().sum() < 100:
        x = x * 2
        for _ in [0]:
            if x.sum() < -20:
                break
        else:
            continue
        break
    else:
        return x, i
    return -x, i


@case((X,), (-X,))
def containers_changed_by_functions_that_a_branch_calls(x):
    found, alias, numbers = [x], None, {1}
    alias = found

    def add(value):
        found.append(value)
        numbers.add(2)

    def extend(items, value):
        items.append(value)

    if x.sum() > 0:
        add(x * 2)
        seen = alias[-1]
    else:
        extend(alias, x * 3)
        seen = found[1] + len(found)
        numbers.add(2)
    total = x * 0
    while total.sum().abs() < 50:
        total = total + found[1]
        found[1] = found[1] * 2
    return found, alias[1], seen, total, len(alias), len(numbers)


@case((X,), (-X,))
def changes_of_what_follows_a_common_part(x):
    found = [x]
    if x.sum() > 0:
        found.append(x)
    found.append(x * 3)
    found[0] = x * 5
    found.insert(0, x * 7)
    return found[0], found[1], ([x] + found)[2], [v * 2 for v in found[:2]], found and x


@case((X,), (-X,))
def numbers_of_two_kinds(x):
    y = 1 if x.sum() > 0 else 2.5
    if x.sum() > 0:
        z = 1.5
    else:
        z = 2
    return x * y, z, any(v > 1 for v in x), all([v > 0 for v in x])  # noqa: C419 - users write it so


@case((X,))
def try_and_with_around(x):
    try:
        if x.sum() > 0:
            x = x + 1
    finally:
        x = x * 2
    return x


@pytest.mark.sampled(10)
@pytest.mark.parametrize(("function", "inputs"), CASES)
def test_compiled_equals_python(function, inputs):
    assert_same(ms.jit(function)(*inputs), function(*inputs))


def test_lambdas_and_closures():
    scale = 2.0

    def inner(x):
        return x * scale if x.sum() > 0 else -x

    assert_same(ms.jit(inner)(X), X * 2)
    assert_same(ms.jit(lambda x: x if x.sum() < 0 else -x)(X), -X)


def test_functions_that_a_program_froze_are_rewritten():
    def positive(x):
        if x.sum() > 0:
            return x
        return -x

    gc.freeze()
    assert_same(ms.jit(positive)(-X), X)


def test_methods_with_super_and_private_names():
    class Base(nn.Cell):
        def double(self, x):
            return x * 2

    class Net(Base):
        def __init__(self):
            super().__init__()
            self.__shift = 3.0

        def construct(self, x):
            if x.sum() > 0:
                x = super().double(x) + self.__shift
            return x

    ms.set_context(mode=ms.GRAPH_MODE)
    assert_same(Net()(X), X * 2 + 3)
    assert_same(Net()(-X), -X)


def test_parameters_written_in_branches_and_loops(mode):
    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.count = ms.Parameter(Tensor(0.0), name="count")

        def construct(self, x):
            while self.count < 3:
                self.count += 1
            if x.sum() > 0:
                self.count = self.count + 1
            else:
                ops.assign(self.count, Tensor(9.0))
            return self.count + 0

    net = Net()
    assert float(net(X)) == 4
    assert float(net(-X)) == 9
    assert float(net.count) == 9


def test_a_function_without_such_control_flow_is_not_touched():
    def plain(x):
        if x.ndim == 1:
            return x + 1
        return x

    code = plain.__code__
    ms.jit(plain)(X)
    assert plain.__code__ is code


def test_gradients_through_branches_and_loops():
    def function(x, w):
        steps = 0
        while steps < 100:  # more rounds than checkpoints are kept
            x = ops.tanh(x * w) + 0.01
            steps = steps + 1 + (x.sum() > 1e9).astype(ms.int32)
            if x[0] > 10:
                x = x * 2
        return x.sum()

    ms.set_context(mode=ms.PYNATIVE_MODE)
    weight = Tensor(1.1)
    eager = ms.grad(function, (0, 1))(X, weight)
    assert_same(ms.jit(ms.grad(function, (0, 1)))(X, weight), eager, rtol=1e-3)  # some are of the order of 1e-14
    ms.set_context(mode=ms.GRAPH_MODE)


def test_assert_and_raise_happen_when_the_step_has_run():
    @ms.jit
    def checked(x):
        assert x.sum() > 0, "not positive"
        if x.sum() > 100:
            raise ValueError("too large")
        return x * 2

    assert_same(checked(X), X * 2)
    with pytest.raises(AssertionError, match="not positive"):
        checked(-X)
    with pytest.raises(ValueError, match="too large"):
        checked(X * 100)
    assert_same(checked(X), X * 2)


def test_words_of_errors_have_the_values_of_the_run():
    @ms.jit
    def checked(x, y):
        assert x >= 0, f"negative: {x}"
        if x > y:
            raise RuntimeError(f"The input {x} should not be greater than {y}.")
        if x == y:
            if x > 5:
                raise ValueError("equal and large", x, y + 1)
            raise ValueError("equal", x, y)
        if y > 50:
            if x == 10:
                raise TypeError("ten")
            else:  # noqa: RET506  # both ways of one condition raise
                raise KeyError(f"not {x + 0}")
        return x + y

    # The wheel's words; one program for all values.
    for values, kind, words in (
        ((3, 1), RuntimeError, "The input 3 should not be greater than 1."),
        ((4, 2), RuntimeError, "The input 4 should not be greater than 2."),
        ((7, 7), ValueError, "('equal and large', 7, 8)"),
        ((2, 2), ValueError, "('equal', 2, 2)"),
        ((-1, 2), AssertionError, "negative: -1"),
        ((10, 60), TypeError, "ten"),
        ((11, 60), KeyError, "'not 11'"),
    ):
        with pytest.raises(kind) as caught:
            checked(*map(Tensor, values))
        assert str(caught.value) == words
    # What is checked on a way that is not taken is not raised.
    assert [int(checked(*map(Tensor, values))) for values in ((1, 2), (6, 7), (10, 11))] == [3, 13, 21]


@pytest.mark.parametrize(
    "write",
    [
        lambda x: f"x is {x} now",
        lambda x: f"{x!r}",
        lambda x: "x is %s now" % x,  # noqa: UP031  # as scripts write it
        lambda x: "%r, %d" % (x, 3),  # noqa: UP031
        lambda x: "x is {} or {}".format(x, x + 1),  # noqa: UP032
        lambda x: "x is " + str(x),
        lambda x: ", ".join(str(each) for each in (x, x + 1)),
        lambda x: f"{[x, 2]} {'%s' % x!r}",  # noqa: UP031
        lambda x: str({"x": x}),
    ],
)
def test_words_are_those_of_eager_code_however_they_are_written(write):
    def checked(x):
        if x > 2:
            raise ValueError(write(x))
        return x

    for value in (3.0, 4.5):
        with pytest.raises(ValueError) as eager:
            checked(Tensor(value))
        with pytest.raises(ValueError) as compiled:
            ms.jit(checked)(Tensor(value))
        assert str(compiled.value) == str(eager.value)


def either(x):
    if x > 3:
        raise ValueError("a", x + 0)
    else:  # noqa: RET506  # both ways raise
        raise TypeError("b %s" % x)  # noqa: UP031


def one_after_another(x):
    y = x + 1
    if x > 3:
        raise ValueError(f"a {y}")
    if x > 1:
        raise TypeError(f"b {y}")
    raise KeyError(f"c {y}")


def nested_and_then(x):
    if x > 3:
        if x > 5:
            raise ValueError("a")
    else:
        x = x + 1
        if x > 3:
            raise TypeError("b")
    raise RuntimeError(f"c {x}")


def loop_and_then(x):
    y = x
    while y > 0:
        if y > 4:
            raise ValueError(f"large {y}")
        y = y - 1
    if x > 2:
        raise KeyError(f"k {y}")
    assert x < 1, f"x is {x}"
    assert y < 1
    return y


def other_way_and_then(x):
    if x > 3:
        assert x > 5, f"small {x}"
        y = x * 2
    else:
        assert x > 1, f"low {x}"
        if x < 2:
            raise ValueError(f"no {x}")
        raise TypeError(f"not {x}")
    return y


@pytest.mark.parametrize("checked", [either, one_after_another, nested_and_then, loop_and_then, other_way_and_then])
def test_of_several_errors_that_of_python_is_raised(checked):
    compiled = ms.jit(checked)
    for _ in range(3):
        for value in (0.5, 1.5, 2.5, 4.0, 6.0):
            outcomes = []
            for function in (checked, compiled):
                try:
                    outcomes.append((None, float(function(Tensor(np.float32(value))))))
                except Exception as error:
                    # Pytest adds a line to the words of an assertion.
                    words = [part.split("\n")[0] if isinstance(part, str) else float(part) for part in error.args]
                    outcomes.append((type(error), words))
            assert outcomes[0] == outcomes[1]
    assert len(ms.recompilations(compiled)) == 1


def test_an_error_that_leaves_a_gradient_has_words():
    def checked(x):
        if x > 3:
            raise ValueError(f"a {x}")
        else:  # noqa: RET506  # both ways raise
            raise TypeError(f"b {x}")

    def step(x):
        return ms.grad(checked)(x)

    with pytest.raises(ValueError, match="a.*traced"):
        ms.jit(step)(Tensor(4.0))


def test_the_first_error_of_a_loop_is_raised():
    @ms.jit
    def checked(x):
        while x.sum() < 100:
            x = x * 2
            if x.sum() > 50:
                raise ValueError(f"large: {x}")
        return x

    with pytest.raises(ValueError, match=r"large: \[48\. 48\.\]"):  # a later round has 96, too
        checked(Tensor(np.array([1.5, 1.5], np.float32)))


def test_printing_shows_values(capfd):
    @ms.jit
    def shows(x):
        print("sum", x.sum(), f"first {x[0]}")
        return x

    shows(X).asnumpy()
    import jax

    jax.effects_barrier()
    assert "sum 6.0 first 1.0" in capfd.readouterr().out.replace("6. ", "6.0 ").replace("first 1.\n", "first 1.0\n")


def one_branch_only(x):
    if x.sum() > 0:
        z = x
    return z


def two_shapes(x):
    z = x[:2] if x.sum() > 0 else x
    return z


def two_dtypes(x):
    if x.sum() > 0:
        z = x.astype(ms.float16)
    else:
        z = x
    return z


def many_elements(x):
    if x > 0:
        return x
    return -x


def only_inside_a_loop(x):
    while x.sum() < 10:
        inner = x * 2
        x = x + 1
    return inner


def the_length_of_lists(x):
    found = [x]
    if x.sum() > 0:
        found.append(x)
    return len(found)


def the_last_of_lists(x):
    found = [x]
    if x.sum() > 0:
        found.append(x)
    return found[-1]


def texts_by_tensor(x):
    return ["sum", "mean"][x[0].astype(ms.int32)]


def the_keys_of_dicts(x):
    found = {"a": x}
    if x.sum() > 0:
        found["b"] = x
    return list(found)


def a_key_of_one_way(x):
    found = {"a": [x]}
    if x.sum() > 0:
        found["a"].append(x)
    return found["a"][1]


def a_list_as_result(x):
    found = []
    while x.sum() < 100:
        x = x * 2
        found.append(x)
    return found


def elements_of_rounds_that_may_not_be(x):
    for v in a_list_as_result(x):
        x = x + v
    return x


def a_stack_of_lists(x):
    found = [x]
    if x.sum() > 0:
        found.append(x)
    return ops.stack(found)


ERRORS = [
    (
        the_keys_of_dicts,
        TypeError,
        r"if, line \d+ of .*, 'found' has different keys .* only its keys \['a'\] can be read; give it",
    ),
    (
        a_key_of_one_way,
        TypeError,
        r"\"?'found\['a'\]' has different lengths .* only its first 1 elements can be read; give it",
    ),
    (a_list_as_result, TypeError, r"while, line \d+ of .*, 'found' has different lengths .* only its first 0 elements"),
    (elements_of_rounds_that_may_not_be, TypeError, "'found' has different lengths .* only its first 0 elements"),
    (a_stack_of_lists, TypeError, "'found' has different lengths .* only its first 1 elements can be read"),
    (texts_by_tensor, TypeError, "can only be the index of functions, or of tensors or numbers of one type and shape"),
    (one_branch_only, UnboundLocalError, "'z'"),
    (only_inside_a_loop, UnboundLocalError, "'inner'"),
    (the_length_of_lists, TypeError, "'found' has different lengths .* only its first 1 elements can be read"),
    (the_last_of_lists, TypeError, "'found' has different lengths .* only its first 1 elements can be read"),
    (two_shapes, TypeError, r"one type and shape.*\[2\].*\[3\]"),
    (two_dtypes, TypeError, r"'z' must have one type and shape.*float16.*float32"),
    (many_elements, ValueError, r"shape is \(\) or \(1,\).*\(3,\)"),
]


@pytest.mark.parametrize(("function", "kind", "message"), ERRORS)
@pytest.mark.sampled(4)
def test_arguments_that_do_not_fit_are_refused(function, kind, message):
    with pytest.raises(kind, match=message):
        ms.jit(function)(X)


def test_errors_show_the_users_lines():
    def broken(x):
        if x.sum() > 0:
            z = ops.matmul(x, ops.ones((5, 5)))
        else:
            z = x
        return z

    with pytest.raises(ValueError) as caught:
        ms.jit(broken)(X)
    lines = [frame.line for frame in traceback.extract_tb(caught.value.__traceback__) if frame.filename == __file__]
    assert lines[-1] == "z = ops.matmul(x, ops.ones((5, 5)))"
    assert "if x.sum() > 0:" in lines


def test_an_expression_that_needs_a_value_is_refused_with_its_line():
    def filters(x):
        return [value for value in x if value > 1]

    with pytest.raises(TypeError, match=r"(?s)not known while the step is being compiled.*test_control_flow.py, line"):
        ms.jit(filters)(X)


class Layers(nn.Cell):
    """One of several layers, by a number that is known when the step runs."""

    def __init__(self, container):
        super().__init__()
        self.container = container

    def construct(self, x, index):
        return self.container[index](x) * 2


@pytest.mark.parametrize("make", [tuple, list, nn.CellList], ids=["tuple", "list", "CellList"])
def test_a_tensor_chooses_a_layer(make):
    layers = [nn.Dense(2, 2), nn.ReLU(), nn.Dense(2, 2)]
    for name, dense in zip("ab", layers[::2], strict=True):
        dense.update_parameters_name(name)
        dense.weight.set_data(Tensor([[1.0, 2.0], [3.0, 4.0]]))
    net, x = Layers(make(layers)), Tensor([[1.0, -2.0]])
    compiled = ms.jit(net.construct)
    for index in (0, 1, 2, -1, -3):
        assert np.array_equal(compiled(x, Tensor(index, ms.int32)).asnumpy(), (layers[index](x) * 2).asnumpy())
    # The gradient reaches the chosen layer alone.
    weights = ms.ParameterTuple(layer.weight for layer in layers[::2])
    slopes = ms.jit(lambda x, i: ms.grad(net, None, weights)(x, i))(x, Tensor(2, ms.int32))
    assert not slopes[0].asnumpy().any() and slopes[1].asnumpy().any()


def test_switches_choose_by_values_that_are_not_known():
    @ms.jit
    def chosen(x, index):
        return ops.functional.switch_layer(index, [lambda v: v + 1, lambda v: v * 3])(x), ops.functional.switch(
            x > 1, x, -x
        )

    assert [float(v) for v in chosen(Tensor(2.0), Tensor(1))] == [6, 2]
    assert [float(v) for v in chosen(Tensor(0.5), Tensor(0))] == [1.5, -0.5]


def test_a_status_of_two_kinds_is_refused_only_where_it_is_read():
    weight = ms.Parameter(Tensor([1.0, 2.0]), name="weight")
    update = nn.SGD([weight], 1.0)

    def step(loss, overflow, reads):
        if overflow:
            done = False
        else:
            done = update((loss * 2,))
        return ops.depend(loss, bool(done) if reads else done)

    ran = ms.jit(step)
    for overflow, after in ((True, [1, 2]), (False, [-1, -2])):
        assert ran(Tensor([1.0, 2.0]), Tensor(overflow), False).tolist() == [1, 2]
        assert weight.asnumpy().tolist() == after
    with pytest.raises(
        TypeError, match="'done' must have one structure whichever way is taken, but got bool False and"
    ):
        ran(Tensor([1.0, 2.0]), Tensor(True), True)


class Keeps(nn.Cell):
    """Containers of a Cell that grow in a loop and in a method that a branch calls."""

    def __init__(self):
        super().__init__()
        self.found, self.notes = [], {}

    def note(self, value):
        self.notes["last"] = value

    def construct(self, x):
        self.found, self.notes["last"] = [], x
        for i in range(3):
            self.found.append(x * i + 1)
            if x.sum() > i:
                break
        if x.sum() > 0:
            self.note(x * 2)
        return self.found[0] + self.notes["last"] + len(self.notes)


@pytest.mark.filterwarnings(
    "ignore:For 'Keeps', the (list|dict) '(found|notes)' gets tensors"
)  # read in the step alone
def test_containers_of_cells(mode):
    net = Keeps()
    for x in (X, -X, X):
        assert_same(net(x), 2 + (x * 2 if x.sum() > 0 else x))


@pytest.mark.parametrize(
    "function", [lists_that_grow_in_while, the_common_part_of_containers_in_containers, loops_with_else]
)
def test_gradients_through_loops_in_which_containers_grow(function):
    def total(x):
        return sum(part.sum() for part in function(x)[:2] if isinstance(part, Tensor))

    for x in (X, -X):
        ms.set_context(mode=ms.PYNATIVE_MODE)
        eager = ms.grad(total)(x)
        ms.set_context(mode=ms.GRAPH_MODE)
        assert_same(ms.jit(ms.grad(total))(x), eager)
