"""Layers that are placed on workers: losses and Parameters of one process, each product in the program of its worker only."""

import json

import numpy as np

import sporax.mindspore as ms


def test_placed_layers_train_as_in_one_process_and_only_their_worker_computes_them(
    check_ranks, check_in_turn, tmp_path
):
    check_ranks("placed.py", 1, tmp_path)
    folder, _ = check_in_turn("placed.py {folder}")
    alone, first, second = (
        json.loads((place / f"{name}.json").read_text())
        for place, name in ((tmp_path, "1-0"), (folder, "2-0"), (folder, "2-1"))
    )
    np.testing.assert_allclose(first["losses"], alone["losses"], rtol=1e-6)
    assert second["losses"] == first["losses"]
    # A layer's products: forward, for its weights, and for its input (in one process not for the data).
    assert alone["products"] == 5
    assert (first["products"], second["products"]) == (3, 3)
    expected = ms.load_checkpoint(str(tmp_path / "1-0.ckpt"))
    for rank in range(2):
        trained = ms.load_checkpoint(str(folder / f"2-{rank}.ckpt"))
        assert set(trained) == set(expected)
        for name, parameter in expected.items():
            np.testing.assert_allclose(trained[name].asnumpy(), parameter.asnumpy(), rtol=1e-5, atol=1e-6, err_msg=name)


def test_placed_calls_that_cannot_be_are_errors(check_in_turn):
    _, printed = check_in_turn("placed_refusals.py")
    lines = printed.splitlines()
    expected = [
        "For 'Sums', the mode must be GRAPH_MODE for an operator that is placed on worker 1, but it is PYNATIVE_MODE.",
        "For 'a call that is placed on worker 1', communication operators must stand outside of it.",
        "For 'Dense', the placement must be that of the Cell around it, worker 1, but it is worker 0.",
        "For 'Placed', the order of a derivative must be 1, but that of a derivative is requested.",
    ]
    shown = [line for line in lines if "For '" in line]
    assert len(shown) == len(expected), lines
    for line, words in zip(shown, expected, strict=True):
        assert words.partition("', ")[2] in line
