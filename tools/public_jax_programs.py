"""The programs that `run_public_jax.py` drives: for each how its step is made, small to run and at a real size to plan.

A row imports the public code as it is. `Step.make` makes the arguments; at a real size it is traced for their shapes only. What a
program does in its `main` is done here with made data, and its line with `jax.jit` or `jax.pmap` becomes one with `sporax.plan`.
"""

from __future__ import annotations

import functools
import importlib
import json
import sys
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Args = tuple[Any, ...]


class Step(NamedTuple):
    """A training step to plan.

    Attributes:
        fn: the step, without its `jax.jit`.
        make: makes its arguments.
        donate: positions of arguments that results take the place of.
        axes: names and sizes of mesh axes that the program's constraints name.
    """

    fn: Callable[..., Any]
    make: Callable[[], Args]
    donate: tuple[int, ...] = (0,)
    axes: Mapping[str, int] | None = None


class Program(NamedTuple):
    """A row of the table.

    Attributes:
        repository: name of the checkout.
        folders: of it, where its modules are imported from.
        build: makes the step, at a real size or small.
        real: the real size, in words.
        change: what becomes of the line that compiles it.
        first: modules that test what is installed, and are loaded before empty modules stand in.
    """

    repository: str
    folders: tuple[str, ...]
    build: Callable[[bool], Step]
    real: str
    change: str
    first: tuple[str, ...] = ()


PROGRAMS: dict[str, Program] = {}


def program(
    name: str, repository: str, *folders: str, real: str, change: str = "`jax.jit`", first: tuple[str, ...] = ()
) -> Any:
    """Put a function that builds a step into the table."""

    def noted(build: Callable[[bool], Step]) -> Callable[[bool], Step]:
        PROGRAMS[name] = Program(repository, folders, build, real, change, first)
        return build

    return noted


# --------------------------------------------------------------------------------------------------------- made data


def floats(*shape: int, dtype: Any = "float32") -> jax.Array:
    """Normal numbers."""
    return jax.random.normal(jax.random.key(1), shape, jnp.float32).astype(dtype)


def numbers(below: int, *shape: int) -> jax.Array:
    """Integers from 1 on, without the 0 that often means padding."""
    return jax.random.randint(jax.random.key(2), shape, 1, below)


def key() -> jax.Array:
    """A key of the kind that older programs have."""
    return jax.random.PRNGKey(0)


def bound(fn: Callable[..., Any], axis: str) -> Callable[..., Any]:
    """A step that reduces over the axis of `jax.pmap`, of the whole batch: its reductions are over one group."""
    return jax.vmap(fn, in_axes=None, out_axes=None, axis_name=axis, axis_size=1)


PMAP = "`jax.pmap` → `jax.vmap` of one group"


# ------------------------------------------------------------------------------------------- steps inside of programs


class CalledError(Exception):
    """The step was called: with which function and arguments."""

    def __init__(self, fn: Any, args: Args) -> None:
        super().__init__("called")
        self.fn, self.args_of_call = fn, args


@contextmanager
def caught(module: Any, attribute: str, name: str) -> Any:
    """In the block, what `module.attribute` (such as `jax.jit`) compiles under `name` raises `CalledError` when it is called."""
    own = getattr(module, attribute)

    def compiled(fn: Any = None, *options: Any, **keywords: Any) -> Any:
        if fn is None:
            return lambda fn: compiled(fn, *options, **keywords)
        if getattr(fn, "__name__", "") != name:
            return own(fn, *options, **keywords)

        def call(*args: Any) -> Any:
            raise CalledError(fn, args)

        return call

    setattr(module, attribute, compiled)
    try:
        yield
    finally:
        setattr(module, attribute, own)


def step_of(main: Callable[[], Any], module: Any, attribute: str, name: str) -> tuple[Any, Args]:
    """The step that a program makes inside of its `main`, and the arguments of its first call."""
    with caught(module, attribute, name):
        try:
            main()
        except CalledError as call:
            return call.fn, call.args_of_call
    raise ValueError(f"the program calls no '{name}'")


def cells(path: Path, *without: str) -> list[str]:
    """The code of a notebook, without cells that have one of these texts."""
    found = json.loads(path.read_text())["cells"]
    code = ["".join(cell["source"]) for cell in found if cell["cell_type"] == "code"]
    plain = ["\n".join(line for line in text.splitlines() if line[:1] not in ("%", "!")) for text in code]
    return [text for text in plain if not any(word in text for word in without)]


def namespace(path: Path, *without: str, **names: Any) -> dict[str, Any]:
    """What the cells of a notebook define, where `names` have these values whatever the cells say."""
    # Dataclasses look their module up by its name.
    module = sys.modules["notebook"] = ModuleType("notebook")
    found: dict[str, Any] = vars(module)
    found.update(names)
    for text in cells(path, *without):
        exec(compile(text, str(path), "exec"), found)
        found.update(names)
    return found


def here(name: str) -> Path:
    """The folder of a checkout, which the path of modules has."""
    return next(folder for entry in sys.path for folder in (Path(entry), *Path(entry).parents) if folder.name == name)


# ---------------------------------------------------------------------------------------------------------- flax: nnx


@program("flax mnist (nnx)", "flax", "examples/mnist", real="batch 65,536")
def flax_mnist(is_real: bool) -> Step:
    import optax
    import train
    from flax import nnx

    size = 65_536 if is_real else 16

    def make() -> Args:
        model = train.CNN(nnx.Rngs(0))
        optimizer = nnx.Optimizer(model, optax.adamw(0.005, 0.9), wrt=nnx.Param)
        metrics = nnx.MultiMetric(accuracy=nnx.metrics.Accuracy(), loss=nnx.metrics.Average("loss"))
        batch = {"image": floats(size, 28, 28, 1), "label": numbers(10, size)}
        return model, optimizer, metrics, batch, nnx.Rngs(dropout=1)

    return Step(train.train_step, make, ())


@program("flax gemma (nnx)", "flax", "examples/gemma", real="Gemma 3 1B, 512 × 1,024 tokens")
def flax_gemma(is_real: bool) -> Step:
    import optax
    import sow_lib
    import train
    import transformer
    from flax import nnx

    batch, length = (512, 1024) if is_real else (8, 16)
    small = {
        "num_layers": 2, "embed_dim": 32, "hidden_dim": 64, "num_heads": 4, "head_dim": 16, "num_kv_heads": 2,
        "use_post_attn_norm": False, "use_post_ffw_norm": False, "attention_types": (1, 1), "final_logit_softcap": None,
    }  # fmt: skip
    kind = transformer.TransformerConfig
    config = (
        kind.from_version_name("gemma3_1b", num_embed=262_144, dtype=jnp.bfloat16)
        if is_real
        else kind.from_dict(**small, num_embed=64, dtype=jnp.float32)
    )

    def make() -> Args:
        rngs = nnx.Rngs(params=0, dropout=0)
        model = transformer.Transformer(config, rngs=rngs, sow_config=sow_lib.SowConfig())
        schedule = train.create_learning_rate_schedule(0.0016, 1000)
        optimizer = nnx.Optimizer(model, optax.adamw(schedule, b1=0.9, b2=0.98, eps=1e-9), wrt=nnx.Param)
        metrics = nnx.MultiMetric(loss=nnx.metrics.Average("loss"), accuracy=nnx.metrics.Accuracy())
        rows = jnp.broadcast_to(jnp.arange(length), (batch, length))
        data = {"inputs": numbers(64, batch, length), "targets": numbers(64, batch, length),
                "inputs_position": rows, "inputs_segmentation": jnp.ones((batch, length), jnp.int32)}  # fmt: skip
        return model, optimizer, rngs, data, metrics

    return Step(train.nnx_train_step, make, ())


# -------------------------------------------------------------------------------------------------------- flax: linen


@program("flax imagenet", "flax", "examples/imagenet", real="ResNet-50, batch 8,192", change=PMAP)
def flax_imagenet(is_real: bool) -> Step:
    import models
    import train
    from configs import default

    config, size = default.get_config(), 224 if is_real else 32
    model = train.create_model(model_cls=models.ResNet50 if is_real else models._ResNet1, half_precision=False)
    rate = train.create_learning_rate_fn(config, 0.1, 100)

    def make() -> Args:
        state = train.create_train_state(jax.random.key(0), config, model, size, rate)
        batch = 8192 if is_real else 16
        return state, {"image": floats(batch, size, size, 3), "label": numbers(1000, batch)}

    return Step(bound(functools.partial(train.train_step, learning_rate_fn=rate), "batch"), make)


def transformer_config(models: Any, vocabulary: int, length: int, is_real: bool) -> Any:
    """What the programs with a `TransformerConfig` have by default, or less."""
    small = {"emb_dim": 32, "num_heads": 4, "num_layers": 2, "qkv_dim": 32, "mlp_dim": 64}
    config = models.TransformerConfig(vocab_size=vocabulary, output_vocab_size=vocabulary, max_len=length)
    return config if is_real else config.replace(**small)


@program("flax wmt", "flax", "examples/wmt", real="the default, 4,096 × 256 tokens", change=PMAP)
def flax_wmt(is_real: bool) -> Step:
    import models
    import optax
    import train

    batch, length, vocabulary = (4096, 256, 30_000) if is_real else (8, 16, 64)
    config = transformer_config(models, vocabulary, length, is_real).replace(share_embeddings=True)
    rate = train.create_learning_rate_schedule(0.0625, 1000)
    evaluated = models.Transformer(config.replace(deterministic=True))

    def make() -> Args:
        tokens = numbers(vocabulary, batch, length)
        params = evaluated.init(jax.random.key(0), jnp.ones((2, length)), jnp.ones((2, length)))["params"]
        optimizer = optax.adamw(rate, b1=0.9, b2=0.98, eps=1e-9, weight_decay=0.0)
        state = train.TrainState.create(apply_fn=evaluated.apply, params=params, tx=optimizer, dynamic_scale=None)
        return state, {"inputs": tokens, "targets": tokens}, key()

    def step(state: Any, batch: Any, dropout: Any) -> Any:
        return train.train_step(state, batch, config, rate, 0.1, dropout_rng=dropout)

    return Step(bound(step, "batch"), make)


@program("flax lm1b", "flax", "examples/lm1b", real="the default, 4,096 × 128 tokens")
def flax_lm1b(is_real: bool) -> Step:
    import flax
    import models
    import optax
    import train
    from configs import default
    from flax.training.train_state import TrainState

    batch, length, vocabulary = (4096, 128, 30_000) if is_real else (8, 16, 64)
    config = transformer_config(models, vocabulary, length, is_real)
    config = config.replace(dtype=jnp.bfloat16) if is_real else config
    rate = train.create_learning_rate_schedule(default.get_config().learning_rate, 1000)
    evaluated = models.TransformerLM(config.replace(deterministic=True))

    def make() -> Args:
        boxed = evaluated.init(jax.random.key(0), jnp.ones((2, length)))["params"]
        optimizer = optax.adamw(rate, b1=0.9, b2=0.98, eps=1e-9, weight_decay=0.1)
        state = TrainState.create(apply_fn=evaluated.apply, params=flax.linen.unbox(boxed), tx=optimizer)
        return state, {"inputs": numbers(vocabulary, batch, length)}, key()

    def step(state: Any, batch: Any, dropout: Any) -> Any:
        return train.train_step(state, batch, config, rate, 0.0, dropout)

    return Step(step, make)


@program("flax nlp_seq", "flax", "examples/nlp_seq", real="the default, 4,096 × 256 tokens", change=PMAP)
def flax_nlp_seq(is_real: bool) -> Step:
    import models
    import optax
    import train
    from flax.training.train_state import TrainState

    batch, length, vocabulary = (4096, 256, 30_000) if is_real else (8, 16, 64)
    model = models.Transformer(transformer_config(models, vocabulary, length, is_real))
    rate = train.create_learning_rate_scheduler(base_learning_rate=0.05)

    def make() -> Args:
        params = model.init(jax.random.key(0), inputs=jnp.ones((2, length)), train=False)["params"]
        state = TrainState.create(apply_fn=model.apply, params=params, tx=optax.adamw(rate, weight_decay=0.1))
        data = {"inputs": numbers(vocabulary, batch, length), "targets": numbers(vocabulary, batch, length)}
        return state, data, key()

    def step(state: Any, batch: Any, dropout: Any) -> Any:
        return train.train_step(state, batch, model, rate, dropout)

    return Step(bound(step, "batch"), make)


@program("flax vae", "flax", "examples/vae", real="batch 65,536")
def flax_vae(is_real: bool) -> Step:
    import models
    import optax
    import train
    from flax.training.train_state import TrainState

    size = 65_536 if is_real else 16

    def make() -> Args:
        model = models.model(20)
        params = model.init(jax.random.key(0), jnp.ones((2, 784)), key())["params"]
        state = TrainState.create(apply_fn=model.apply, params=params, tx=optax.adam(1e-3))
        return state, jnp.abs(floats(size, 784)) % 1, key()

    return Step(functools.partial(train.train_step, latents=20), make)


@program("flax ppo", "flax", "examples/ppo", real="16 minibatches of 4,096 frames")
def flax_ppo(is_real: bool) -> Step:
    import models
    import ppo_lib
    from configs import default

    size, rounds = (4096, 16) if is_real else (8, 2)
    model = models.ActorCritic(num_outputs=4)

    def make() -> Args:
        params = model.init(jax.random.key(0), jnp.ones((1, 84, 84, 4)))["params"]
        state = ppo_lib.create_train_state(params, model, default.get_config(), 1000)
        rows = size * rounds
        frames, actions = numbers(255, rows, 84, 84, 4).astype("float32"), numbers(4, rows)
        return state, (frames, actions, -jnp.abs(floats(rows)), floats(rows), floats(rows))

    options = {"clip_param": 0.1, "vf_coeff": 0.5, "entropy_coeff": 0.01}
    return Step(lambda state, seen: ppo_lib.train_step(state, seen, size, **options), make)


@program("flax seq2seq", "flax", "examples/seq2seq", real="hidden 4,096, batch 16,384")
def flax_seq2seq(is_real: bool) -> Step:
    import train
    from absl import flags

    flags.FLAGS(["train", f"--hidden_size={4096 if is_real else 32}"])
    size, table = 16_384 if is_real else 8, train.CTable("0123456789+= ", 3)

    def make() -> Args:
        state = train.get_train_state(jax.random.key(0), table)
        query, answer = (
            jax.nn.one_hot(numbers(table.vocab_size, size, length), table.vocab_size)
            for length in (table.max_input_len, table.max_output_len)
        )
        return state, {"query": query, "answer": answer}, key()

    return Step(lambda state, batch, rng: train.train_step(state, batch, rng, table.eos_id), make)


@program("flax ogbg_molpcba", "flax", "examples/ogbg_molpcba", real="the default, 16,384 graphs")
def flax_graphs(is_real: bool) -> Step:
    import jraph
    import train
    from configs import default
    from flax.training.train_state import TrainState

    config, graphs = default.get_config(), 16_384 if is_real else 8
    if not is_real:
        config.latent_size, config.message_passing_steps, config.num_classes = 16, 2, 8
    nodes, edges = 32 * graphs, 64 * graphs

    def make() -> Args:
        data = jraph.GraphsTuple(
            nodes=floats(nodes, 9), edges=floats(edges, 3), senders=numbers(nodes, edges), receivers=numbers(nodes, edges),
            globals=numbers(2, graphs, config.num_classes).astype("float32"), n_node=jnp.full(graphs, 32),
            n_edge=jnp.full(graphs, 64),
        )  # fmt: skip
        network = train.create_model(config, deterministic=False)
        params = train.create_model(config, deterministic=True).init(jax.random.key(0), train.replace_globals(data))
        state = TrainState.create(apply_fn=network.apply, params=params, tx=train.create_optimizer(config))
        return state, data, {"dropout": key()}

    return Step(train.train_step, make)


@program("flax sst2", "flax", "examples/sst2", real="the default, 8,192 × 64 tokens")
def flax_sst2(is_real: bool) -> Step:
    import train
    from configs import default

    config, (batch, length) = default.get_config(), (8192, 64) if is_real else (8, 12)
    config.vocab_size = 16_384 if is_real else 64
    if not is_real:
        config.embedding_size, config.hidden_size = 16, 16
    model = train.model_from_config(config)

    def make() -> Args:
        state = train.create_train_state(jax.random.key(0), config, model)
        data = {"token_ids": numbers(config.vocab_size, batch, length), "length": jnp.full(batch, length - 2),
                "label": numbers(2, batch).astype("float32")}  # fmt: skip
        return state, data, {"dropout": key(), "word_dropout": key()}

    return Step(train.train_step, make)


# -------------------------------------------------------------------------------------------------------------- haiku


def images(size: int) -> Any:
    """Images and labels as the loaders of data sets give them."""
    random = np.random.default_rng(0)
    return random.integers(0, 2, (size, 28, 28, 1)).astype("uint8"), random.integers(0, 10, size).astype("int32")


def of_haiku(name: str, size: int, batch: Callable[[Any], Any], is_real: bool) -> Step:
    """The step `update` that a program makes in its `main`, where the data set is a made batch."""
    train = importlib.import_module(name)
    train.load_dataset = lambda *args, **options: iter(lambda: batch(train), None)
    fn, args = step_of(lambda: train.main(None), jax, "jit", "update")
    return Step(fn, lambda: jax.tree.map(jnp.asarray, args))


@program("haiku mnist", "dm-haiku", "examples", real="batch 65,536")
def haiku_mnist(is_real: bool) -> Step:
    return of_haiku("mnist", 0, lambda train: train.Batch(*images(65_536 if is_real else 16)), is_real)


@program("haiku vae", "dm-haiku", "examples", real="batch 65,536")
def haiku_vae(is_real: bool) -> Step:
    from absl import flags

    flags.FLAGS(["vae"])
    return of_haiku("vae", 0, lambda train: train.Batch(images(65_536 if is_real else 16)[0]), is_real)


@program("haiku transformer", "dm-haiku", ".", real="12 layers of 1,024, 512 × 1,024 tokens")
def haiku_transformer(is_real: bool) -> Step:
    from examples.transformer import train

    batch, length = (512, 1024) if is_real else (8, 16)
    train.NUM_LAYERS, train.MODEL_SIZE, train.KEY_SIZE = (12, 1024, 128) if is_real else (2, 32, 8)

    def make() -> Args:
        data = train.dataset.Batch(numbers(train.dataset.VOCAB_SIZE, batch, length), numbers(100, batch, length))
        return train.init(key(), data), data

    return Step(train.update, make)


@program("haiku rnn", "dm-haiku", ".", real="hidden 2,048, 8,192 × 128 characters")
def haiku_rnn(is_real: bool) -> Step:
    from absl import flags
    from examples.rnn import train

    flags.FLAGS(["train", f"--hidden_size={2048 if is_real else 16}"])
    batch, length = (8192, 128) if is_real else (8, 12)

    def make() -> Args:
        data = {name: numbers(train.dataset.NUM_CHARS, length, batch) for name in ("input", "target")}
        init, _ = train.hk.without_apply_rng(train.hk.transform(train.sequence_loss))
        params = init(key(), data)
        return train.TrainingState(params, train.make_optimizer().init(params)), data

    return Step(train.update, make)


# ------------------------------------------------------------------------------------------------------------ equinox


def of_equinox(fn: Callable[..., Any], make: Callable[[], Args], donate: tuple[int, ...]) -> Step:
    """A step of modules: the arrays of its arguments are the arguments of the plan."""
    import equinox as eqx

    shapes = eqx.filter_eval_shape(make)
    rest = eqx.partition(shapes, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))[1]

    def step(*arrays: Any) -> Any:
        return eqx.filter(fn(*eqx.combine(arrays, rest)), eqx.is_array)

    return Step(step, lambda: eqx.filter(make(), eqx.is_array), donate)


FILTER = "`eqx.filter_jit` → `eqx.partition`, `eqx.combine`"


@program("equinox vision transformer", "equinox", "docs/examples", real="ViT-L/16, batch 4,096", change=FILTER)
def equinox_vision(is_real: bool) -> Step:
    import equinox as eqx
    import optax

    height, patch, width, heads, layers, batch = (224, 16, 1024, 16, 24, 4096) if is_real else (8, 4, 16, 2, 2, 8)
    found = namespace(
        here("equinox") / "docs/examples/vision_transformer.ipynb", "DataLoader(\n", "VisionTransformer(\n    embedding_dim=emb",
        "accuracies", height=height, width=height, channels=3, batch_size=batch,
    )  # fmt: skip
    optimizer = optax.adamw(1e-4)

    def make() -> Args:
        model = found["VisionTransformer"](
            width, 4 * width, heads, layers, 0.1, patch, (height // patch) ** 2, 10, key()
        )
        state = optimizer.init(eqx.filter(model, eqx.is_inexact_array))
        rows = jax.random.split(key(), batch)
        return model, optimizer, state, floats(batch, 3, height, height), numbers(10, batch), rows

    return of_equinox(found["step_model"], make, (0, 2))


@program("equinox rnn", "equinox", "docs/examples", real="hidden 4,096, batch 16,384", change=FILTER)
def equinox_rnn(is_real: bool) -> Step:
    import equinox as eqx

    size, batch = (4096, 16_384) if is_real else (16, 16)
    found = namespace(here("equinox") / "docs/examples/train_rnn.ipynb", "main()")
    main = functools.partial(found["main"], dataset_size=2 * batch, batch_size=batch, hidden_size=size)
    fn, args = step_of(main, eqx, "filter_jit", "make_step")
    return of_equinox(fn, lambda: args, (0, 3))


@program(
    "equinox score-based diffusion", "equinox", "docs/examples", real="8 blocks of 512, batch 16,384", change=FILTER
)
def equinox_diffusion(is_real: bool) -> Step:
    import equinox as eqx
    import optax

    width, mixed, blocks, batch = (512, 2048, 8, 16_384) if is_real else (16, 32, 2, 8)
    found = namespace(here("equinox") / "docs/examples/score_based_diffusion.ipynb", "main()")
    optimizer = optax.adabelief(3e-4)

    def make() -> Args:
        model = found["Mixer2d"]((1, 28, 28), 4, width, mixed, mixed, blocks, 10.0, key=key())
        state = optimizer.init(eqx.filter(model, eqx.is_inexact_array))
        return (model, lambda t: 1 - jnp.exp(-t), lambda t: t, floats(batch, 1, 28, 28), 10.0, key(), state,
                optimizer.update)  # fmt: skip

    return of_equinox(found["make_step"], make, (0, 5, 6))


# -------------------------------------------------------------------------------------------------------------- optax


@program("optax nanolm", "optax", "examples", real="the default, batch 256")
def optax_nanolm(is_real: bool) -> Step:
    sizes = {} if is_real else {"BLOCK_SIZE": 16, "NUM_LAYERS": 2, "EMBED_SIZE": 32, "NUM_HEADS": 4, "HEAD_SIZE": 8}
    text = "the quick brown fox jumps over the lazy dog\n" * 100

    def run() -> None:
        namespace(
            here("optax") / "examples/nanolm.ipynb", "tfds.load",
            text_train=text, text_validation=text, **sizes, BATCH_SIZE=256 if is_real else 8,
        )  # fmt: skip

    fn, args = step_of(run, jax, "jit", "step")
    return Step(fn, lambda: args, (0, 1, 2))


@program("optax adversarial training", "optax", "examples", real="batch 65,536")
def optax_adversarial(is_real: bool) -> Step:
    import optax

    batch = 65_536 if is_real else 8
    found = namespace(
        here("optax") / "examples/adversarial_training.ipynb",
        "tfds.data_source",
        "plt.subplots",
        "var_params, test",
        num_classes=10,
    )
    found["optimizer"] = optimizer = optax.adam(1e-3)

    def make() -> Args:
        params = found["net"].init(key(), jnp.zeros((1, 28, 28, 1)))["params"]
        return params, optimizer.init(params), (numbers(255, batch, 28, 28, 1), numbers(10, batch))

    return Step(found["train_step"], make, (0, 1))


@program("optax L-BFGS", "optax", "examples", real="logistic regression, 1,048,576 × 4,096")
def optax_lbfgs(is_real: bool) -> Step:
    import optax

    rows, width = (1_048_576, 4096) if is_real else (64, 16)
    found = namespace(here("optax") / "examples/lbfgs.ipynb", "print(", "plt", "time")

    def step(w: Any, x: Any, y: Any) -> Any:
        def loss(w: Any) -> Any:
            return jax.nn.softplus(-y * (x @ w)).mean() + 1e-3 * (w**2).sum()

        return found["run_opt"](w, loss, optax.lbfgs(), 5, 1e-3)[0]

    return Step(step, lambda: (jnp.zeros(width), floats(rows, width), jnp.sign(floats(rows))))


# --------------------------------------------------------------------------------------- language and vision models


def updating(loss: Callable[..., Any], optimizer: Any) -> Callable[..., Any]:
    """The step of a program that brings a model, a loss and an optimizer: gradients, and the optimizer's update."""
    import optax

    def step(params: Any, state: Any, *data: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(params, *data)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, value

    return step


@program("big_vision vit", "big_vision", ".", real="ViT-L/16 by scan, batch 4,096")
def big_vision(is_real: bool) -> Step:
    import big_vision.optax
    import big_vision.utils
    from big_vision.models import vit
    from ml_collections import ConfigDict

    size, batch, classes = (224, 4096, 1000) if is_real else (16, 8, 10)
    kind = {"variant": "L/16"} if is_real else {"width": 32, "depth": 2, "num_heads": 2, "patch_size": (8, 8)}
    dtype = "bfloat16" if is_real else "float32"
    model = vit.Model(classes, **kind, scan=True, pool_type="gap", rep_size=True, dtype_mm=dtype)
    schedule = {"decay_type": "cosine", "warmup_steps": 10}
    config = ConfigDict(
        {"optax_name": "scale_by_adam", "grad_clip_norm": 1.0, "lr": 1e-3, "wd": 1e-4, "schedule": schedule}
    )

    def init() -> Any:
        return model.init(key(), jnp.zeros((2, size, size, 3)))["params"]

    keywords = {"total_steps": 100, "batch_size": batch, "data_size": 1000}
    optimizer, _ = big_vision.optax.make(config, jax.eval_shape(init), sched_kw=keywords)

    def loss(params: Any, image: Any, labels: Any, rng: Any) -> Any:
        logits, _ = model.apply({"params": params}, image, train=True, rngs={"dropout": rng})
        return big_vision.utils.sigmoid_xent(logits=logits, labels=labels)

    def make() -> Args:
        params = init()
        labels = jax.nn.one_hot(numbers(classes, batch), classes)
        return params, optimizer.init(params), floats(batch, size, size, 3), labels, key()

    return Step(updating(loss, optimizer), make, (0, 1))


@program("EasyLM llama", "EasyLM", ".", real="7B, 512 × 2,048 tokens, its constraints over 8 × 8")
def easylm(is_real: bool) -> Step:
    from types import SimpleNamespace

    from jax.interpreters import pxla

    class Resources:  # as JAX had it in 2024
        physical_mesh = property(lambda self: jax.sharding.get_abstract_mesh())

    pxla.thread_resources, clip = SimpleNamespace(env=Resources()), jnp.clip
    jnp.clip = lambda a, min=None, max=None, a_min=None, a_max=None: clip(
        a, a_min if min is None else min, a_max if max is None else max
    )
    from EasyLM.jax_utils import JaxRNG, cross_entropy_loss_and_accuracy, with_sharding_constraint
    from EasyLM.models.llama.llama_model import FlaxLLaMAForCausalLMModule, LLaMAConfigurator
    from EasyLM.optimizers import OptimizerFactory
    from flax.training.train_state import TrainState

    batch, length = (512, 2048) if is_real else (8, 16)
    small = {"hidden_size": 32, "intermediate_size": 64, "vocab_size": 64, "max_position_embeddings": 32}
    config = LLaMAConfigurator.get_default_config(
        {"base_model": "llama_7b"} if is_real else {"base_model": "debug", **small}
    )
    config = LLaMAConfigurator.finalize_config(config)
    dtype = jnp.bfloat16 if is_real else jnp.float32
    model = FlaxLLaMAForCausalLMModule(config, dtype=dtype, param_dtype=jnp.float32)
    optimizer, _ = OptimizerFactory.get_optimizer(OptimizerFactory.get_default_config())

    def step(state: Any, rng: Any, batch: Any) -> Any:
        keys = JaxRNG(rng)
        batch = with_sharding_constraint(batch, jax.sharding.PartitionSpec(("dp", "fsdp")))

        def loss(params: Any) -> Any:
            rngs = keys(LLaMAConfigurator.rng_keys())
            logits = model.apply(params, batch["input_tokens"], deterministic=False, rngs=rngs).logits
            return cross_entropy_loss_and_accuracy(logits, batch["target_tokens"], batch["loss_masks"])

        (value, accuracy), gradients = jax.value_and_grad(loss, has_aux=True)(state.params)
        return state.apply_gradients(grads=gradients), keys(), {"loss": value, "accuracy": accuracy}

    def make() -> Args:
        ones = jnp.ones((4, length), jnp.int32)
        rngs = JaxRNG(key())(LLaMAConfigurator.rng_keys())
        params = model.init(input_ids=ones, position_ids=ones, attention_mask=ones, rngs=rngs)
        tokens = numbers(config.vocab_size, batch, length)
        data = {"input_tokens": tokens, "target_tokens": tokens, "loss_masks": jnp.ones((batch, length))}
        return TrainState.create(params=params, tx=optimizer, apply_fn=None), key(), data

    return Step(step, make, (0, 1), {"dp": 1, "fsdp": 8, "mp": 8} if is_real else {"dp": 2, "fsdp": 2, "mp": 2})


@program(
    "jax-llm-examples llama3",
    "jax-llm-examples",
    "llama3",
    real="8B, prefill of 256 × 2,048 tokens, explicit axes of 8 × 2 × 4",
)
def llama3(is_real: bool) -> Step:
    from jax.sharding import AbstractMesh, AxisType
    from llama3_jax import model

    names, sizes = ("x", "y", "z"), (8, 2, 4) if is_real else (2, 2, 2)
    mesh = AbstractMesh(sizes, names, axis_types=(AxisType.Explicit,) * 3)
    if is_real:
        jax.sharding.use_abstract_mesh(mesh).__enter__()
    else:
        mesh = jax.make_mesh(sizes, names, axis_types=mesh.axis_types)
        jax.set_mesh(mesh)
    batch, length = (256, 2048) if is_real else (8, 16)
    widths = (4096, 14_336, 32, 8, 32, 128, 128_256, 8192) if is_real else (32, 64, 4, 2, 2, 8, 64, 32)
    config = model.Config(
        *widths, True, False, False, mesh=mesh, dtype=jnp.bfloat16 if is_real else jnp.float32, quant_layer=False,
        quant_cache=False,
    )  # fmt: skip

    def make() -> Args:
        weights = model.Weights.init(key(), config)
        return weights, numbers(config.vocab_size, batch, length), jnp.ones((batch, length), jnp.int32)

    return Step(lambda weights, tokens, segments: model.forward(tokens, segments, weights, config)[0], make, (), mesh)


@program(
    "levanter llama",
    "levanter",
    "src",
    "../haliax/src",
    real="7B by scan, 128 × 2,048 tokens, its constraints over 8 × 8",
    change=FILTER,
)
def levanter_llama(is_real: bool) -> Step:
    mean = jnp.mean  # as JAX had it in 2025, with masks of floats
    jnp.mean = lambda *a, where=None, **k: mean(*a, where=None if where is None else where.astype(bool), **k)
    import haliax as hax
    import jmp
    import levanter.tracker
    import optax
    from levanter.layers.attention import AttentionBackend, AttentionMask
    from levanter.models.llama import LlamaConfig, LlamaLMHeadModel
    from levanter.models.lm_model import LmExample, compute_next_token_loss
    from levanter.trainer import Trainer, TrainerConfig, TrainerState

    size, batch, vocabulary = ({}, 128, 32_000) if is_real else (
        {"seq_len": 16, "hidden_dim": 32, "intermediate_dim": 64, "num_layers": 2, "num_heads": 4, "num_kv_heads": 2}, 8, 64
    )  # fmt: skip
    config = LlamaConfig(**size, attn_backend=AttentionBackend.VANILLA)
    policy = jmp.get_policy("p=f32,c=bf16" if is_real else "f32")
    options = TrainerConfig(
        id="made", tracker=levanter.tracker.NoopConfig(), mp=policy, train_batch_size=batch, fsdp_axis="embed",
        tensor_parallel_axes=["mlp", "heads"],
    )  # fmt: skip
    optimizer = optax.adamw(1e-4)
    trainer = Trainer(options, optimizer, compute_next_token_loss, add_default_hooks=False)

    def make() -> Args:
        rows, words = hax.Axis("batch", batch), hax.Axis("vocab", vocabulary)
        model = LlamaLMHeadModel.init(words, config, key=key())
        state = TrainerState.init(optimizer, model, key=key(), mp=policy)
        tokens = hax.named(numbers(vocabulary, batch, config.seq_len), (rows, config.Pos))
        return state, LmExample(tokens, hax.ones(tokens.axes), AttentionMask.causal())

    step = of_equinox(lambda state, example: trainer._train_step(state, (example,), {}, _no_hooks=True), make, (0,))
    axes = {"replica": 1, "data": 8, "model": 8} if is_real else {"replica": 1, "data": 4, "model": 2}
    return step._replace(axes=axes)


@program("MaxText llama", "maxtext", "src", real="Llama 2 7B by scan, 512 × 2,048 tokens, its constraints over 8 × 8")
def maxtext(is_real: bool) -> Step:
    # The package requires Python 3.12 or newer.
    from flax import nnx
    from flax.linen import partitioning
    from maxtext.common.train_state_nnx import TrainStateNNX
    from maxtext.configs import pyconfig
    from maxtext.trainers.pre_train import train
    from maxtext.utils import maxtext_utils, model_creation_utils, train_utils

    axes = {"fsdp": 8, "tensor": 8} if is_real else {"fsdp": 4, "tensor": 2}
    size: dict[str, Any] = {
        "base_emb_dim": 32, "base_mlp_dim": 64, "base_num_decoder_layers": 2, "base_num_query_heads": 4,
        "base_num_kv_heads": 2, "head_dim": 8, "vocab_size": 64, "dtype": "float32", "max_target_length": 16,
        "per_device_batch_size": 1,
    }  # fmt: skip
    if is_real:
        size = {"model_name": "llama2-7b", "max_target_length": 2048, "per_device_batch_size": 8}
        size |= {"compile_topology": "v5e-64", "compile_topology_num_slices": 1}
    config = pyconfig.initialize(
        ["train", str(here("maxtext") / "src/maxtext/configs/base.yml")], run_name="made", base_output_directory="made",
        enable_checkpointing=False, skip_jax_distributed_system=True, log_config=False, hardware="cpu",
        attention="dot_product", **{f"ici_{name}_parallelism": count for name, count in axes.items()}, **size,
    )  # fmt: skip
    axes = {name: axes.get(name, 1) for name in config.mesh_axes}
    types = (jax.sharding.AxisType.Auto,) * len(axes)
    mesh: Any = jax.sharding.AbstractMesh(tuple(axes.values()), tuple(axes), axis_types=types)
    if is_real:
        # It reads the platform of a device of its mesh.
        jax.sharding.AbstractMesh.devices = property(lambda mesh: np.array(jax.devices()[:1]))
    else:
        mesh = maxtext_utils.get_mesh_from_config(config)
    create, model = model_creation_utils.create_nnx_abstract_model(config, mesh)
    optimizer = train_utils.create_training_optimizer(config, model)[1]

    def state() -> Any:
        with partitioning.axis_rules(config.logical_axis_rules):
            model = create()
            return TrainStateNNX(model, nnx.Optimizer(model, optimizer, wrt=nnx.Param))

    shardings = maxtext_utils.get_abstract_state(config, mesh, state, True)[2]
    graph, params = nnx.graphdef(nnx.eval_shape(state)), nnx.split(shardings.model, nnx.Param, ...)[1]

    def step(state: Any, batch: Any) -> Any:
        with partitioning.axis_rules(config.logical_axis_rules):
            return train.train_step(graph, config, shardings, params, state, batch)

    def make() -> Args:
        batch = {name: jnp.ones(one.shape, one.dtype) for name, one in maxtext_utils.get_shaped_batch(config).items()}
        tokens = numbers(config.vocab_size, *batch["inputs"].shape)
        places = jnp.broadcast_to(jnp.arange(tokens.shape[1], dtype=tokens.dtype), tokens.shape)
        data = {"inputs": tokens, "targets": tokens, "inputs_position": places, "targets_position": places}
        return nnx.state(state(), nnx.Not(nnx.Intermediate)), batch | data

    return Step(step, make, (0,), axes)


@program("gemma", "gemma", ".", real="Gemma 3 1B, 512 × 1,024 tokens")
def gemma(is_real: bool) -> Step:
    import dataclasses

    import optax
    from gemma import gm
    from gemma.gm.nn import _config, _modules

    batch, length = (512, 1024) if is_real else (8, 16)
    local, everywhere = _modules.AttentionType.LOCAL_SLIDING, _modules.AttentionType.GLOBAL
    small = _config.TransformerConfig(
        num_embed=64, embed_dim=32, hidden_dim=64, num_heads=4, head_dim=16, num_kv_heads=2, final_logit_softcap=None,
        use_post_attn_norm=True, use_post_ffw_norm=True, attention_types=(local, everywhere), sliding_window_size=8,
        use_qk_norm=True,
    )  # fmt: skip
    own = gm.nn.Gemma3_1B(tokens="batch.input")
    model = own if is_real else dataclasses.replace(own, config=small, dtype=jnp.float32)
    optimizer = optax.adafactor(learning_rate=1e-3)

    def loss(params: Any, tokens: Any, targets: Any, mask: Any) -> Any:
        logits = model.apply({"params": params}, tokens).logits
        each = optax.softmax_cross_entropy_with_integer_labels(logits.astype("float32"), targets)
        return (each * mask).sum() / mask.sum()

    def make() -> Args:
        params = model.init(key(), jnp.ones((2, length), jnp.int32))["params"]
        tokens = numbers(model.config.num_embed, batch, length)
        return params, optimizer.init(params), tokens, tokens, jnp.ones((batch, length))

    return Step(updating(loss, optimizer), make, (0, 1))


# ------------------------------------------------------------------------------------------------------------ PureJaxRL


@program("PureJaxRL ppo", "purejaxrl", "purejaxrl", real="65,536 environments", first=("distrax",))
def purejaxrl(is_real: bool) -> Step:
    jax.tree_map = jax.tree.map  # as JAX had it in 2024
    import ppo

    worlds, steps = (65_536, 128) if is_real else (8, 8)
    config = {
        "LR": 2.5e-4, "NUM_ENVS": worlds, "NUM_STEPS": steps, "TOTAL_TIMESTEPS": 2 * worlds * steps, "UPDATE_EPOCHS": 2,
        "NUM_MINIBATCHES": 2, "GAMMA": 0.99, "GAE_LAMBDA": 0.95, "CLIP_EPS": 0.2, "ENT_COEF": 0.01, "VF_COEF": 0.5,
        "MAX_GRAD_NORM": 0.5, "ACTIVATION": "tanh", "ENV_NAME": "CartPole-v1", "ANNEAL_LR": True,
    }  # fmt: skip
    return Step(ppo.make_train(config), lambda: (key(),), ())
