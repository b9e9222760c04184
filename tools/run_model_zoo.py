"""Run the models and optimizers of an unchanged model zoo (mindcv) with the wheel and with Sporax, and compare.

    pip install --no-deps --target /tmp/zoo mindcv==0.3.0 pyyaml tqdm
    python tools/run_model_zoo.py --zoo /tmp/zoo --folder /tmp/results --wheel PYTHON [--only TEXT]

Problem: names that exist do not show that published models work. Method: of each family one small model. The wheel builds it,
gets weights that follow from a seed (constant ones, such as those of normalization, get noise, so that no layer is without
effect), saves them as a checkpoint and computes a forward. Sporax builds the same model, reads the checkpoint, computes the
same forward and trains one step with the package's own optimizer, loss and trainer. Optimizers take three steps on a small
network, and their weights are compared. The models run one after the other in one process per framework; each leaves a JSON file
in the folder, and what is there is not run again. The counts are in `docs/coverage.md`, from `tools/model_zoo.json`.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

#: Family -> its small model. Batches are (2, 3, size, size).
MODELS = {
    "bit": "BiT_resnet50",
    "cait": "cait_xxs24_224",
    "cmt": "cmt_tiny",
    "coat": "coat_lite_tiny",
    "convit": "convit_tiny",
    "convnext": "convnextv2_atto",
    "crossvit": "crossvit_9",
    "densenet": "densenet121",
    "dpn": "dpn92",
    "edgenext": "edgenext_xx_small",
    "efficientnet": "efficientnet_b0",
    "ghostnet": "ghostnet_050",
    "googlenet": "googlenet",
    "halonet": "halonet_50t",
    "hrnet": "hrnet_w32",
    "inceptionv3": "inception_v3",
    "inceptionv4": "inception_v4",
    "mae": "mae_b_16_224_finetune",
    "mixnet": "mixnet_s",
    "mlpmixer": "mlp_mixer_s_p32",
    "mnasnet": "mnasnet_050",
    "mobilenetv1": "mobilenet_v1_025",
    "mobilenetv2": "mobilenet_v2_035_224",
    "mobilenetv3": "mobilenet_v3_small_075",
    "mobilevit": "mobilevit_xx_small",
    "nasnet": "nasnet_a_4x1056",
    "pit": "pit_ti",
    "pnasnet": "pnasnet",
    "poolformer": "poolformer_s12",
    "pvt": "pvt_tiny",
    "pvtv2": "pvt_v2_b0",
    "regnet": "regnet_x_200mf",
    "repmlp": "repmlp_t224",
    "repvgg": "repvgg_a0",
    "res2net": "res2net50",
    "resnest": "resnest14",
    "resnet": "resnet18",
    "resnetv2": "resnetv2_50",
    "rexnet": "rexnet_09",
    "senet": "seresnet18",
    "shufflenetv1": "shufflenet_v1_g3_05",
    "shufflenetv2": "shufflenet_v2_x0_5",
    "sknet": "skresnet18",
    "squeezenet": "squeezenet1_1",
    "swintransformer": "swin_tiny",
    "swintransformerv2": "swinv2_tiny_window8",
    "vgg": "vgg11",
    "visformer": "visformer_tiny",
    "vit": "vit_b_32_224",
    "volo": "volo_d1",
    "xception": "xception",
    "xcit": "xcit_tiny_12_p16_224",
}
SIZES = {"cmt": 160, "halonet": 256, "swintransformerv2": 256, "inceptionv3": 299, "inceptionv4": 299, "xception": 299}
SIZE = 224
OPTIMIZERS = ("sgd", "momentum", "adam", "adamw", "lion", "nadam", "adan", "rmsprop", "adagrad", "lamb")
TOLERANCE = 1e-5
"""Largest difference from the wheel's output, relative to the largest value of that."""

NOT_RUN = "not run"
Outcome = dict[str, Any]


# ------------------------------------------------------------------------------------------------------ the wheel's side


def fixed_weight(parameter: Any) -> np.ndarray:
    """The value of a Parameter, with noise if it is constant, or values of our own if the package left it without any."""
    random = np.random.RandomState(zlib.crc32(parameter.name.encode()))
    try:
        value: np.ndarray = parameter.asnumpy()
    except RuntimeError:  # made of an initializer that was never run
        return random.uniform(-0.1, 0.1, parameter.shape).astype(np.float32)
    if value.dtype != np.float32 or value.size == 1 or value.min() < value.max():
        return value
    return (value + random.uniform(-0.05, 0.05, value.shape)).astype(np.float32)


def images(family: str) -> np.ndarray:
    """The batch that a family is tried with."""
    size = SIZES.get(family, SIZE)
    return np.random.RandomState(1).uniform(-1, 1, (2, 3, size, size)).astype(np.float32)


def first_array(output: Any) -> np.ndarray:
    """The logits of a model that may give auxiliary ones as well."""
    result: np.ndarray = (output[0] if isinstance(output, (tuple, list)) else output).asnumpy()
    return result


def record_model(family: str, folder: Path) -> Outcome:
    """Under the wheel: weights and output of a family's model."""
    import mindcv

    import mindspore as ms

    ms.set_seed(1)
    network = mindcv.create_model(MODELS[family], num_classes=10)
    for parameter in network.get_parameters():
        parameter.set_data(ms.Tensor(fixed_weight(parameter)))
    ms.save_checkpoint(network, str(folder / f"{family}.ckpt"))
    network.set_train(False)
    np.save(folder / f"{family}.npy", first_array(network(ms.Tensor(images(family)))))
    return {"ok": True}


def optimizer_run(name: str) -> list[np.ndarray]:
    """Weights of a small network after three steps of one of the package's optimizers."""
    from mindcv.optim import create_optimizer

    import mindspore as ms
    from mindspore import nn, ops

    random = np.random.RandomState(3)
    network = nn.SequentialCell(nn.Dense(4, 6), nn.ReLU(), nn.Dense(6, 3))
    for parameter in network.get_parameters():
        parameter.set_data(ms.Tensor(random.uniform(-0.5, 0.5, parameter.shape).astype(np.float32)))
    optimizer = create_optimizer(network.trainable_params(), opt=name, lr=0.01, weight_decay=1e-3, momentum=0.9)
    x, y = (ms.Tensor(random.uniform(-1, 1, shape).astype(np.float32)) for shape in ((5, 4), (5, 3)))
    step = ms.value_and_grad(lambda: ops.mse_loss(network(x), y), None, optimizer.parameters)
    for _ in range(3):
        optimizer(step()[1])
    return [parameter.asnumpy() for parameter in network.get_parameters()]


def record_optimizer(name: str, folder: Path) -> Outcome:
    """Under the wheel: the weights that an optimizer reaches."""
    np.savez(folder / f"{name}.npz", *optimizer_run(name))
    return {"ok": True}


# ------------------------------------------------------------------------------------------------------- Sporax's side


def compare_model(family: str, folder: Path) -> Outcome:
    """Under Sporax: build, and a forward against the wheel's if that could do it."""
    import mindcv

    import mindspore as ms

    network = mindcv.create_model(MODELS[family], num_classes=10)
    network.set_train(False)
    expected = folder / f"{family}.npy"
    if not expected.exists():
        finite = bool(np.isfinite(first_array(network(ms.Tensor(images(family))))).all())
        return {"ok": finite}
    not_loaded, _ = ms.load_param_into_net(
        network, ms.load_checkpoint(str(folder / f"{family}.ckpt")), strict_load=True
    )
    if not_loaded:
        raise ValueError(f"the checkpoint does not have {not_loaded[:5]}")
    difference = relative(first_array(network(ms.Tensor(images(family)))), np.load(expected))
    return {"ok": difference <= TOLERANCE, "difference": difference}


def relative(actual: np.ndarray, expected: np.ndarray) -> float:
    """Largest difference over the largest value."""
    return float(np.abs(actual - expected).max() / np.abs(expected).max())


def train_model(family: str, folder: Path) -> Outcome:
    """Under Sporax: one step of the package's trainer.

    Raises:
        ValueError: the loss is not finite, or a weight that is trained did not change.
    """
    import mindcv

    import mindspore as ms
    from mindspore import dataset as ds

    network = mindcv.create_model(MODELS[family], num_classes=10)
    batch = ds.NumpySlicesDataset(
        (images(family), np.array([3, 7], np.int32)), ["image", "label"], shuffle=False
    ).batch(2)
    optimizer = mindcv.optim.create_optimizer(
        network.trainable_params(), opt="momentum", lr=0.01, weight_decay=1e-4, momentum=0.9
    )
    loss = mindcv.loss.create_loss("CE", label_smoothing=0.1, aux_factor=0.4 if "inception" in family else 0.0)
    trainer = mindcv.utils.create_trainer(network, loss, optimizer, None, "O0", None, "fixed", loss_scale=1.0)
    before = [parameter.asnumpy().copy() for parameter in network.trainable_params()]
    kept = LastLoss.callback(ms)
    trainer.train(1, batch, callbacks=[kept], dataset_sink_mode=False)
    changed = [not np.array_equal(a, b.asnumpy()) for a, b in zip(before, network.trainable_params(), strict=True)]
    if not np.isfinite(kept.loss) or sum(changed) < 0.9 * len(changed):
        raise ValueError(f"loss {kept.loss}; {sum(changed)} of {len(changed)} Parameters changed")
    return {"ok": True, "loss": float(kept.loss)}


class LastLoss:
    """Makes the callback that keeps the loss; its base class exists once `mindspore` can be imported."""

    @staticmethod
    def callback(ms: Any) -> Any:
        """A new callback with the attribute `loss`."""

        class Keep(ms.Callback):  # type: ignore[misc]  # a class of the framework that runs
            loss = float("nan")

            def step_end(self, run_context: Any) -> None:
                """Keep the loss."""
                result = run_context.original_args().net_outputs
                self.loss = float(np.asarray(first_array(result)).reshape(-1)[0])

            on_train_step_end = step_end

        return Keep()


def compare_optimizer(name: str, folder: Path) -> Outcome:
    """Under Sporax: the weights that an optimizer reaches against the wheel's."""
    weights = optimizer_run(name)
    recorded = folder / f"{name}.npz"
    if not recorded.exists():
        return {"ok": True}
    with np.load(recorded) as expected:
        pairs = list(zip(weights, expected.values(), strict=True))
    difference = max(relative(a, b) for a, b in pairs)
    return {"ok": difference <= TOLERANCE, "difference": difference}


# ------------------------------------------------------------------------------------------------------------ processes


WORK: dict[str, tuple[Callable[[str, Path], Outcome], Callable[[str, Path], Outcome]]] = {
    "mindspore": (record_model, record_optimizer),
    "sporax": (compare_model, compare_optimizer),
    "training": (train_model, compare_optimizer),
}
"""What a process does -> with a family, with an optimizer."""


def run_all(module: str, names: Iterable[str], folder: Path) -> None:
    """Run what has no result yet in this process; one JSON file per model or optimizer."""
    if module != "mindspore":
        from sporax.mindspore._names import alias

        alias.install()
    import mindspore as ms

    ms.set_context(mode=ms.PYNATIVE_MODE if module == "mindspore" else ms.GRAPH_MODE, device_target="CPU")
    for name in names:
        function = WORK[module][name not in MODELS]
        result = folder / f"{name}.{module}.json"
        if result.exists():
            continue
        result.write_text(json.dumps({"ok": False, "error": "the process ended"}))
        start = time.perf_counter()
        try:
            outcome = function(name, folder)
        except Exception as error:
            outcome = {"ok": False, "error": f"{type(error).__name__}: {error}"[:2000]}
        outcome["seconds"] = round(time.perf_counter() - start, 1)
        result.write_text(json.dumps(outcome))
        print(name, json.dumps(outcome), flush=True)
        gc.collect()
    os._exit(0)


def start(python: str, module: str, names: list[str], folder: Path, zoo: Path) -> None:
    """Run everything in a process of a framework, again after one that died, until each name has a result."""
    command = [python, str(Path(__file__).resolve()), "--child", module, "--folder", str(folder), "--zoo", str(zoo)]
    places = [str(zoo), *(os.environ.get("PYTHONPATH", "").split(os.pathsep) if module != "mindspore" else ())]
    environment = {**os.environ, "GLOG_v": "4", "JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(places)}
    while any(not (folder / f"{name}.{module}.json").exists() for name in names):
        subprocess.run([*command, "--names", *names], env=environment, cwd=folder, check=False)


def outcome_of(name: str, module: str, folder: Path) -> Outcome:
    """What a run left."""
    file = folder / f"{name}.{module}.json"
    result: Outcome = json.loads(file.read_text()) if file.exists() else {"ok": False, "error": NOT_RUN}
    return result


def summary(names: Iterable[str], folder: Path, before: dict[str, Outcome]) -> dict[str, Outcome]:
    """Name -> what `docs/coverage.md` needs of it; what was not run stays as it was `before`."""
    rows = dict(before)
    for name in names:
        wheel, ours, training = (outcome_of(name, module, folder) for module in WORK)
        kind = {"model": MODELS[name]} if name in MODELS else {"optimizer": name}
        row: Outcome = {**kind, "wheel": False, "ok": False, **before.get(name, {})}
        if wheel.get("error") != NOT_RUN:
            row["wheel"] = wheel["ok"]
        if ours.get("error") != NOT_RUN:
            row["ok"] = ours["ok"]
            row.pop("error", None)
        if "difference" in ours:
            row["difference"] = float(f"{ours['difference']:.1e}")
        if name in MODELS and training.get("error") != NOT_RUN:
            row["trained"] = training["ok"]
        errors = [outcome["error"] for outcome in (ours, training) if outcome.get("error", NOT_RUN) != NOT_RUN]
        rows[name] = {**row, **({"error": errors[0][:300]} if errors else {})}
    return rows


def main() -> None:
    """Run both frameworks, print what does not agree, and write the summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zoo", type=Path, required=True, help="folder in which mindcv is installed")
    parser.add_argument("--folder", type=Path, required=True, help="where weights and results are kept")
    parser.add_argument(
        "--wheel", help="python of an environment with MindSpore 2.10; without it, its results are read"
    )
    parser.add_argument("--only", default="", help="names with this text")
    parser.add_argument(
        "--write", type=Path, help="file for the summary, e.g. tools/model_zoo.json; rows of what was not run stay"
    )
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--names", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if options.child:
        run_all(options.child, options.names, folder)
    names = [name for name in (*MODELS, *OPTIMIZERS) if options.only in name]
    if options.wheel:
        start(options.wheel, "mindspore", names, folder, options.zoo.resolve())
    start(sys.executable, "sporax", names, folder, options.zoo.resolve())
    start(sys.executable, "training", [name for name in names if name in MODELS], folder, options.zoo.resolve())
    before = json.loads(options.write.read_text()) if options.write and options.write.exists() else {}
    rows = summary(names, folder, before)
    for name, row in rows.items():
        if not row["ok"] or not row.get("trained", True):
            print(f"{name}: {row.get('error', row.get('difference'))}")
    trained = [row["trained"] for row in rows.values() if "trained" in row]
    print(f"{sum(row['ok'] for row in rows.values())} of {len(rows)} agree; {sum(trained)} of {len(trained)} trained")
    if options.write:
        options.write.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
