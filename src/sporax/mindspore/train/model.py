"""`Model`: a network, a loss, an optimizer and metrics, with the loops that train, evaluate and predict.

Here the networks are put together and the arguments checked; `_loop` runs the steps. A training step is one Cell
(`nn.TrainOneStepCell`), so in GRAPH_MODE it is one compiled program.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any

from sporax.base.errors import For, SporaxRuntimeError, SporaxValueError
from sporax.mindspore import context
from sporax.mindspore.amp import build_train_network
from sporax.mindspore.common.tensor import Tensor
from sporax.mindspore.context import (
    ParallelMode as ParallelMode,  # scripts import it from here
    get_auto_parallel_context,
)
from sporax.mindspore.nn.cell import Cell
from sporax.mindspore.nn.wrap import WithEvalCell, WithLossCell
from sporax.mindspore.parallel.auto_parallel import AutoParallel
from sporax.mindspore.train import _feed as feed
from sporax.mindspore.train._loop import GroupedSteps, TrainLoop, check_inputs, check_two_columns, evaluate
from sporax.mindspore.train.callback._callback import (
    Callback,
    CallbackManager,
    InternalCallbackParam,
    RunContext,
    as_callbacks,
    check_events,
)
from sporax.mindspore.train.callback._model_checkpoint import save_on_exception
from sporax.mindspore.train.callback._progress import default_progress, job_progress
from sporax.mindspore.train.callback._resumable import check_resume
from sporax.mindspore.train.callback._resuming import in_recovery, is_resume_requested, job_id
from sporax.mindspore.train.metrics._metric import Metric, get_metrics
from sporax.mindspore.train.metrics._simple import Loss


class Model:
    """Trains, evaluates and runs a network. Same as MindSpore's, with the differences of `docs/training.md`.

    Args:
        network: the network; with the loss in it when `loss_fn` is None.
        loss_fn: called with the network's output and the label.
        optimizer: updates the Parameters; None when `network` is a whole training step already.
        metrics: set of names of `sporax.mindspore.train.names()`, or a dict name -> Metric.
        eval_network: gives what metrics are computed from; made of `network` and `loss_fn` by default.
        eval_indexes: positions of loss, prediction and label among the outputs of `eval_network`; None passes all of
            them to every metric.
        amp_level: mixed precision: ``"O0"`` none, ``"O1"``, ``"O2"``, ``"O3"``, ``"auto"``.
        boost_level: MindSpore's bundle of accuracy-changing speed-ups; only ``"O0"``, none, is offered.
        options: ``loss_scale_manager`` and ``keep_batchnorm_fp32`` for mixed precision.

    Raises:
        SporaxTypeError, SporaxValueError, SporaxKeyError: what was given does not fit together; the message says what.
        SporaxRuntimeError: the parallel settings request full batches in a mode that does not shard them.

    Example:
        >>> model = Model(net, nn.CrossEntropyLoss(), nn.Momentum(net.trainable_params(), 0.1, 0.9), {"accuracy"})
        >>> model.train(10, train_data, callbacks=[LossMonitor(100)])
        >>> model.eval(test_data)
        {'accuracy': 0.98}
    """

    def __init__(
        self,
        network: Any,
        loss_fn: Any = None,
        optimizer: Any = None,
        metrics: Any = None,
        eval_network: Any = None,
        eval_indexes: list[int] | None = None,
        amp_level: str = "O0",
        boost_level: str = "O0",
        **options: Any,
    ) -> None:
        feed.check_parts(network, loss_fn, optimizer)
        feed.check_options(options, boost_level)
        self._network: Cell = network
        self._check_parallel("Model")
        self._loss_fn = loss_fn
        self._optimizer = optimizer
        self._amp_level = For("Model").text("amp_level", amp_level, ("O0", "O1", "O2", "O3", "auto"))
        self._loss_scale_manager = options.get("loss_scale_manager")
        self._train_network = self._make_train_network(options)
        self._steps = GroupedSteps(self._train_network)
        self._metric_fns: dict[str, Metric] = get_metrics(metrics) or {}
        self._eval_network, self._eval_indexes = self._make_eval_network(eval_network, eval_indexes)
        self._facts = InternalCallbackParam()

    def _make_train_network(self, options: dict[str, Any]) -> Cell:
        if self._optimizer is not None:
            settings = {
                # Only what was given: `build_train_network` has defaults of its own.
                name: options[name]
                for name in ("loss_scale_manager", "keep_batchnorm_fp32")
                if name in options
            }
            return build_train_network(self._network, self._optimizer, self._loss_fn, level=self._amp_level, **settings)
        # Without an optimizer the network is the whole step, whose precision is decided already.
        if self._amp_level != "O0" or self._loss_scale_manager is not None:
            raise SporaxValueError(
                "For 'Model', mixed precision and 'loss_scale_manager' need an 'optimizer', but it is None; "
                f"'amp_level' is '{self._amp_level}'."
            )
        return self._network if self._loss_fn is None else WithLossCell(self._network, self._loss_fn)

    def _make_eval_network(self, eval_network: Any, indexes: list[int] | None) -> tuple[Any, list[int] | None]:
        # Without metrics nothing is evaluated, so no network has to be made.
        if not self._metric_fns:
            return eval_network, indexes
        if eval_network is not None:
            if indexes is not None and not (isinstance(indexes, list) and len(indexes) == 3):
                raise For("Model").error("'eval_indexes' must be None or a list of three positions", indexes, show=repr)
            return eval_network, indexes
        if self._loss_fn is None:
            raise SporaxValueError(
                "For 'Model', 'metrics' must come with 'loss_fn' or 'eval_network', but both are None; "
                "leave 'metrics' out to train without evaluation."
            )
        # At these levels the network computes in float16, and metrics want float32.
        in_float32 = self._amp_level in ("O2", "O3", "auto")
        return WithEvalCell(self._network, self._loss_fn, in_float32), [0, 1, 2]

    # ---------------------------------------------------------------------------------------------------- networks

    @property
    def train_network(self) -> Any:
        """The Cell that does one training step."""
        return self._train_network

    @property
    def eval_network(self) -> Any:
        """The Cell that gives what metrics are computed from; None without metrics."""
        return self._eval_network

    @property
    def predict_network(self) -> Any:
        """The network."""
        return self._network

    # ---------------------------------------------------------------------------------------------------- training

    def train(
        self,
        epoch: int,
        train_dataset: Any,
        callbacks: Any = None,
        dataset_sink_mode: bool = False,
        sink_size: int = -1,
        initial_epoch: int = 0,
        *,
        resume: bool = False,
    ) -> None:
        """Train up to epoch number `epoch`.

        Args:
            epoch: number of the last epoch.
            train_dataset: gives (data, label), or whatever the network takes when there is no `loss_fn`.
            callbacks: a Callback or several.
            dataset_sink_mode: in GRAPH_MODE, run many steps per dispatch; callbacks get one step per epoch.
            sink_size: steps per epoch in sink mode, reading on where the last epoch stopped; -1 for the whole dataset.
            initial_epoch: number of epochs already done.
            resume: go on from the newest complete checkpoint of the `ResumableCheckpoint` or `ModelCheckpoint` among the
                callbacks, with the position in the data and in random numbers; begin if there is none yet. Also with
                `sporax run --resume`, and with MS_ENABLE_RECOVERY=1 in the environment.

        Raises:
            SporaxTypeError, SporaxValueError: an argument is not valid, or the dataset is empty.
        """
        self._fit(
            "Model.train",
            epoch,
            train_dataset,
            callbacks,
            dataset_sink_mode,
            sink_size,
            initial_epoch,
            resume=check_resume(resume, as_callbacks(callbacks), is_resume_requested()),
        )

    def fit(
        self,
        epoch: int,
        train_dataset: Any,
        valid_dataset: Any = None,
        valid_frequency: Any = 1,
        callbacks: Any = None,
        dataset_sink_mode: bool = False,
        valid_dataset_sink_mode: bool = False,
        sink_size: int = -1,
        initial_epoch: int = 0,
    ) -> None:
        """Train, with an evaluation after some of the epochs.

        Args:
            epoch, train_dataset, callbacks, dataset_sink_mode, sink_size, initial_epoch: as in `train`.
            valid_dataset: data to evaluate on; None for no evaluation.
            valid_frequency: evaluate every so many epochs, or a list of epoch numbers.
            valid_dataset_sink_mode: accepted for compatibility; evaluation runs step by step, as metrics need it.

        Raises:
            SporaxTypeError, SporaxValueError: as in `train`; or there is no metric to evaluate.
        """
        For("Model.fit").boolean("valid_dataset_sink_mode", valid_dataset_sink_mode)
        # bool is an int in Python.
        if not isinstance(valid_frequency, int | list) or isinstance(valid_frequency, bool):
            raise For("Model.fit").type_error(
                "'valid_frequency' must be a whole number or a list", type(valid_frequency).__name__
            )
        if isinstance(valid_frequency, int):
            For("Model.fit").integer("valid_frequency", valid_frequency, 1)
        if valid_dataset is not None:
            feed.check_dataset("Model.fit", valid_dataset)
            self._check_metrics("Model.fit")
        # Before training: in `fit` the older events could mean training or evaluation.
        check_events(as_callbacks(callbacks))
        valid = None if valid_dataset is None else (valid_dataset, valid_frequency)
        self._fit("Model.fit", epoch, train_dataset, callbacks, dataset_sink_mode, sink_size, initial_epoch, valid)

    def _fit(
        self,
        where: str,
        epoch: int,
        dataset: Any,
        callbacks: Any,
        sink_mode: bool,
        sink_size: int,
        initial_epoch: int,
        valid: tuple[Any, Any] | None = None,
        resume: bool = False,
    ) -> None:
        For(where).boolean("dataset_sink_mode", sink_mode)
        feed.check_epochs(where, epoch, initial_epoch, sink_size)
        self._check_parallel(where)
        num_batches = feed.check_dataset(where, dataset)
        For(where).refuse(num_batches == 0, "the dataset must not be empty, but it has no batch")
        # In sink mode the host does not see each step, so it cannot follow the scale.
        requested = [*([] if sink_mode else self._scale_follower()), *as_callbacks(callbacks)]
        steps = num_batches if sink_size == -1 else sink_size
        facts = self._facts = InternalCallbackParam(
            mode="train",
            train_network=self._train_network,
            network=self._network,
            loss_fn=self._loss_fn,
            optimizer=self._optimizer,
            loss_scale_mananger=self._loss_scale_manager,  # spelled as in MindSpore
            train_dataset=dataset,
            train_dataset_element=None,
            epoch_num=epoch - initial_epoch,
            batch_num=steps if sink_mode else num_batches,
            cur_step_num=0,
            dataset_sink_mode=sink_mode,
            sink_size=steps if sink_mode else -1,
            list_callback=requested,
            last_save_ckpt_step=None,
            latest_ckpt_file=None,
            resume=resume or in_recovery() or is_resume_requested(),
            # Without a word of the user a job goes on from its own checkpoints alone.
            resume_job="" if resume or is_resume_requested() else job_id(),
        )
        loop = TrainLoop(
            self._steps,
            self._network,
            facts,
            dataset,
            sink_size=steps if sink_mode else None,
            check_batch=check_two_columns if self._loss_fn is not None else partial(check_inputs, self._network),
            after_epoch=lambda manager: self._validate(valid, manager),
        )
        listeners = [*requested, *default_progress(requested), *job_progress()]
        # Settings first and the saving of an exception last: it must happen while callbacks are still open.
        with self._parallel_settings(), CallbackManager(listeners) as manager, save_on_exception(requested, facts):
            facts.parallel_mode = get_auto_parallel_context("parallel_mode")
            facts.device_number = get_auto_parallel_context("device_num")
            loop.run(range(initial_epoch, epoch), manager)

    def _check_parallel(self, where: str) -> None:
        """Check the context's settings; a network with settings of its own has checked them."""
        if not isinstance(self._network, AutoParallel):
            feed.check_parallel(where)

    def _parallel_settings(self) -> contextlib.AbstractContextManager[Any]:
        """A network with parallel settings of its own brings them for the whole step, optimizer and all."""
        if isinstance(self._network, AutoParallel):
            return context.using(self._network.parallel_config)
        return contextlib.nullcontext()

    def _scale_follower(self) -> list[Callback]:
        manager = self._loss_scale_manager
        return [_ScaleFollower(manager)] if manager is not None and manager.get_drop_overflow_update() else []

    def _validate(self, valid: tuple[Any, Any] | None, manager: CallbackManager) -> None:
        """The evaluation inside `fit`: callbacks of users and TimeMonitor get it, others are about training."""
        if valid is None:
            return
        dataset, frequency = valid
        epoch = self._facts.cur_epoch_num
        if epoch % frequency if isinstance(frequency, int) else epoch not in frequency:
            return
        # Callbacks see the numbers of the evaluation meanwhile.
        saved = {name: self._facts[name] for name in ("mode", "cur_step_num", "batch_num", "net_outputs")}
        listeners = [callback for callback in manager.callbacks if callback.receives_evaluation_in_fit]
        # MindSpore's `fit` reports the loss of the evaluation besides the metrics.
        losses = Loss()
        self._facts.update(
            mode="eval",
            eval_network=self._eval_network,
            valid_dataset=dataset,
            cur_step_num=0,
            batch_num=feed.check_dataset("Model.fit", dataset),
        )
        metrics = self._evaluate(dataset, CallbackManager(listeners), losses)
        # `metrics` stays, for callbacks at the end of the epoch.
        self._facts.update(saved, metrics=metrics)

    # -------------------------------------------------------------------------------------- evaluation and prediction

    def eval(self, valid_dataset: Any, callbacks: Any = None, dataset_sink_mode: bool = False) -> dict[str, Any]:
        """Compute the metrics over a dataset.

        Args:
            valid_dataset: gives what `eval_network` takes.
            callbacks: a Callback or several.
            dataset_sink_mode: accepted for compatibility; evaluation runs step by step, as metrics need it.

        Returns:
            The metrics by name.

        Raises:
            SporaxValueError: the model has no metrics.
        """
        For("Model.eval").boolean("dataset_sink_mode", dataset_sink_mode)
        self._check_parallel("Model.eval")
        self._check_metrics("Model.eval")
        num_batches = feed.check_dataset("Model.eval", valid_dataset)
        requested = as_callbacks(callbacks)
        # The facts of training are put aside.
        outer, self._facts = (
            self._facts,
            InternalCallbackParam(
                mode="eval",
                eval_network=self._eval_network,
                network=self._network,
                valid_dataset=valid_dataset,
                batch_num=num_batches,
                cur_step_num=0,
                dataset_sink_mode=dataset_sink_mode,
                list_callback=requested,
            ),
        )
        try:
            with self._parallel_settings(), CallbackManager(requested) as manager:
                return self._evaluate(valid_dataset, manager, None)
        finally:
            self._facts = outer  # a callback may evaluate in the middle of training

    def _evaluate(self, dataset: Any, manager: CallbackManager, losses: Loss | None) -> dict[str, Any]:
        facts = self._facts
        for metric in self._metric_fns.values():
            metric.clear()

        def update(outputs: Any) -> None:
            self._update_metrics(outputs)
            # Without positions nothing says which output is the loss.
            if losses is not None and self._eval_indexes is not None:
                losses.update(outputs[self._eval_indexes[0]])

        run = evaluate(self._eval_network, self._network, facts, dataset, manager, update)
        facts.metrics = {name: metric.eval() for name, metric in self._metric_fns.items()}
        if losses is not None:
            seen = {"eval_loss": losses.eval()} if self._eval_indexes is not None else {}
            facts.eval_results = {**facts.metrics, **seen}
        manager.on_eval_end(run)
        return dict(facts.metrics)

    def _update_metrics(self, outputs: Any) -> None:
        # A network with one output is a tuple of one for the metrics.
        if isinstance(outputs, Tensor):
            outputs = (outputs,)
        if not isinstance(outputs, tuple):
            raise For("Model.eval").error(
                "the outputs of the evaluation network must be a Tensor or a tuple", type(outputs).__name__
            )
        if self._eval_indexes is None:
            for metric in self._metric_fns.values():
                metric.update(*outputs)
            return
        if len(outputs) <= max(self._eval_indexes):
            raise For("Model.eval").error(
                f"'eval_indexes' is {self._eval_indexes}, but the evaluation network has only {len(outputs)} outputs"
            )
        loss, prediction, label = (outputs[index] for index in self._eval_indexes)
        for metric in self._metric_fns.values():
            # `Loss` takes the first output, all other metrics the other two.
            metric.update(*((loss,) if isinstance(metric, Loss) else (prediction, label)))

    def predict(self, *predict_data: Any, backend: str | None = None, config: Any = None) -> Any:
        """The network's output for these inputs, with layers like Dropout switched off.

        Args:
            predict_data: Tensors, numbers, strings or containers of them.
            backend, config: MindSpore's choice of another inference engine; there is none here.

        Raises:
            SporaxTypeError: an input is something else.
            SporaxValueError: an input is empty, or `backend` is given.
        """
        if backend is not None or config is not None:
            raise SporaxValueError(
                f"For 'Model.predict', 'backend' and 'config' must be None: networks run on XLA, but got {backend!r}."
            )
        for value in predict_data:
            if isinstance(value, Tensor) and value.size == 0:
                raise SporaxValueError(f"For 'Model.predict', inputs must not be empty, but got shape {value.shape}.")
            # None stands for an input that is left out.
            kinds = (Tensor, int, float, str, tuple, list, dict, type(None))
            For("Model.predict").typed("the inputs", value, "Tensors, numbers or strings", kinds)
        if self._network.training:
            self._network.set_train(False)
        return self._network(*predict_data)

    # ----------------------------------------------------------------------------------------------- ahead of time

    def build(
        self,
        train_dataset: Any = None,
        valid_dataset: Any = None,
        sink_size: int = -1,
        epoch: int = 1,
        sink_mode: bool = True,
    ) -> None:
        """Compile the step (and the evaluation) for the shapes of a dataset's first batch, without running it.

        Args:
            train_dataset, valid_dataset: at least one.
            sink_size, epoch: checked; programs do not depend on them here.
            sink_mode: checked; the first group of steps is compiled when it runs.

        Raises:
            SporaxValueError: no dataset.
            SporaxRuntimeError: not in GRAPH_MODE, or `valid_dataset` without metrics.
        """
        For("Model.build").boolean("sink_mode", sink_mode)
        feed.check_epochs("Model.build", epoch, 0, sink_size)
        self._check_parallel("Model.build")
        if train_dataset is None and valid_dataset is None:
            raise SporaxValueError("For 'Model.build', 'train_dataset' and 'valid_dataset' must not both be None.")
        if not context.graph_mode():
            raise SporaxRuntimeError("For 'Model.build', the mode must be GRAPH_MODE, but it is PYNATIVE_MODE.")
        if valid_dataset is not None and not self._metric_fns:
            raise SporaxRuntimeError("For 'Model.build', 'valid_dataset' needs 'metrics', but the model has none.")
        for network, dataset, training in (
            (self._train_network, train_dataset, True),
            (self._eval_network, valid_dataset, False),
        ):
            if dataset is not None:
                # Programs differ by the mode: Dropout and the statistics of BatchNorm.
                network.set_train(training)
                with self._parallel_settings():
                    network.compile(*feed.first_batch("Model.build", dataset, training))

    def infer_train_layout(self, train_dataset: Any, dataset_sink_mode: bool = True, sink_size: int = -1) -> Any:
        """How the Parameters of the training step are sharded over devices. The step is planned, not run.

        Args:
            train_dataset: its first batch says the shapes.
            dataset_sink_mode: must be True, as in MindSpore; the answer does not depend on it.
            sink_size: checked.

        Returns:
            By name of the Parameter a tuple as in `Cell.parameter_layout_dict`; empty on one device.

        Raises:
            SporaxRuntimeError: not in semi_auto_parallel or auto_parallel mode.
            SporaxValueError: no sink mode, an empty dataset, or a `sink_size` that is not valid.
        """
        where = "Model.infer_train_layout"
        with self._parallel_settings():
            feed.check_sharding_mode(where)
            if not For(where).boolean("dataset_sink_mode", dataset_sink_mode):
                raise SporaxValueError(f"For '{where}', 'dataset_sink_mode' must be True, but got False.")
            feed.check_epochs(where, 1, 0, sink_size)
            batch = feed.first_batch(where, train_dataset)
            # The layout is that of the training step, with its optimizer's state.
            self._train_network.set_train(True)
            # Planning does not compile: shapes are enough.
            self._train_network.program.plan(*batch)
            return self._train_network.parameter_layout_dict

    def infer_predict_layout(self, *predict_data: Any, skip_backend_compile: bool = False) -> Any:
        """How the Parameters of the network are sharded over devices for prediction. The network is planned, not run.

        Args:
            predict_data: Tensors like those of `predict`.
            skip_backend_compile: accepted; nothing is compiled here in either case.

        Returns:
            As `infer_train_layout`.

        Raises:
            SporaxRuntimeError: not in semi_auto_parallel or auto_parallel mode.
        """
        For("Model.infer_predict_layout").boolean("skip_backend_compile", skip_backend_compile)
        with self._parallel_settings():
            feed.check_sharding_mode("Model.infer_predict_layout")
            self._network.set_train(False)
            self._network.program.plan(*predict_data)
            return self._network.parameter_layout_dict

    def _check_metrics(self, where: str) -> None:
        For(where).refuse(not self._metric_fns, "the model must have 'metrics' to evaluate, but it has none")


class _ScaleFollower(Callback):
    """Reports to the loss scale manager after every step whether it overflowed; the step has acted on it by itself."""

    receives_evaluation_in_fit = False

    def __init__(self, manager: Any) -> None:
        self._manager = manager

    def on_train_step_end(self, run_context: RunContext) -> None:
        """Read the step's second output."""
        outputs = run_context.original_args().net_outputs
        # The second output says whether gradients overflowed.
        self._manager.update_loss_scale(bool(outputs[1].asnumpy().all()))
