"""The page of a plan: well-formed, complete, and in need of nothing else."""

import re
from html.parser import HTMLParser

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sporax
import sporax.mindspore as ms
from sporax.mindspore import Tensor, context, nn, ops
from sporax.mindspore.communication import init, release
from sporax.mindspore.parallel import plan_of
from sporax.report.view.step_graph import folded_graph

VOID = {"meta", "br", "wbr", "input"}
FOREIGN = re.compile(r"""https?:|//[a-z]|<link|<script[^>]|<img|@import|url\((?!#)|(?:src|href)=""")


class Page(HTMLParser):
    """Refuses tags that do not match; collects tables and pictures."""

    def __init__(self, text):
        super().__init__()
        self.open, self.texts, self.count, self.goes_on = [], [], {}, False
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.count[tag] = self.count.get(tag, 0) + 1
        self.goes_on = tag == "wbr"
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.count[tag] = self.count.get(tag, 0) + 1

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.goes_on:
            self.texts[-1] += data.strip()
        else:
            self.texts.append(data.strip())
        self.goes_on = False


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Dense(16, 32), nn.Dense(32, 16)
        self.product = ops.MatMul().shard(((2, 4), (4, 1)))
        self.weight = ms.Parameter(Tensor(np.ones((16, 8), np.float32)), name="a<b>")

    def construct(self, x):
        return self.product(x + self.down(ops.gelu(self.up(x))), self.weight)


@pytest.fixture(scope="module")
def trained():
    """The planned training step of a small network."""
    mode = context.get_context("mode")
    context.set_context(mode=ms.GRAPH_MODE)
    init()
    context.set_auto_parallel_context(parallel_mode="semi_auto_parallel", device_num=8)
    net = Net()
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.CrossEntropyLoss()), nn.Adam(net.trainable_params(), 1e-3))
    planned = plan_of(step, Tensor(np.ones((8, 16), np.float32)), Tensor(np.zeros(8, np.int32)))
    yield planned
    release()
    context.set_context(mode=mode)
    context.reset_auto_parallel_context()


def loss(w, x):
    return ((jax.nn.relu(x @ w["up"]) @ w["down"]) ** 2).mean()


def test_everything_is_there_and_nothing_from_elsewhere(trained, tmp_path):
    trained.report(tmp_path / "plan.html")
    text = (tmp_path / "plan.html").read_text(encoding="utf-8")
    page, summary = Page(text), trained.summary()
    assert not FOREIGN.search(text)
    assert {row.path for row in summary.operators if row.path} <= set(page.texts)
    assert {row.name for row in summary.tensors} <= set(page.texts)
    assert "a<b>" in page.texts
    assert {"Each device", "all_reduce", "Memory of one device over time"} <= set(page.texts)
    assert (page.count["svg"], page.count["polygon"] >= 3) == (2, True)
    assert "Search" not in page.texts  # nothing was searched


def test_boxes_and_arrows_carry_all_collectives(trained):
    summary = trained.summary()
    boxes, arrows = summary.operators, summary.arrows
    drawn = sum(arrow.moved_bytes for arrow in arrows) + sum(box.moved_bytes for box in boxes)
    assert drawn == sum(item.num_bytes for item in summary.totals.traffic) > 0
    matmul = next(n for n, box in enumerate(boxes) if box.name == "MatMul")
    assert sum(arrow.moved_bytes for arrow in arrows if arrow.target == matmul) + boxes[matmul].moved_bytes > 0


def test_functions_of_plain_jax_have_a_box_per_heavy_operator(tmp_path):
    w = {"up": jnp.ones((512, 1024)), "down": jnp.ones((1024, 512))}
    planned = sporax.plan(jax.value_and_grad(loss), w, jnp.ones((64, 512)), devices=8, hardware="h100")
    summary = planned.summary()
    boxes, arrows = summary.operators, summary.arrows
    names = [box.name for box in boxes]
    assert names.count("dot_general") == sum(operator.name == "dot_general" for operator in planned.graph.operators)
    assert arrows
    assert sum(box.seconds for box in boxes) == pytest.approx(planned.search.cost_seconds, rel=0.05)
    planned.report(tmp_path / "plan.html")
    page = Page((tmp_path / "plan.html").read_text(encoding="utf-8"))
    assert {"Search", "dynamic", "dot_general"} <= set(page.texts)
    assert any("['up']" in text for text in page.texts)


def test_layers_with_equal_shardings_are_drawn_once():
    def deep(layers):
        def run(ws, x):
            for number, w in enumerate(ws):
                with jax.named_scope(f"layers.{number}"):
                    x = jax.nn.relu(x @ w)
            return x

        planned = sporax.plan(run, [jnp.ones((64, 64))] * layers, jnp.ones((64, 64)), devices=8, hardware="h100")
        summary = planned.summary()
        return summary.operators, *folded_graph(summary.operators, summary.arrows, "s")

    boxes, few, arrows = deep(12)
    assert sum(box.times for box in few) == len(boxes) == 12
    assert len(few) == len(deep(6)[1]) < 6
    assert any(box.paths.startswith("layers.") and "-" in box.paths for box in few)
    assert all(
        arrow.source != arrow.target and {arrow.source, arrow.target} <= set(range(len(few))) for arrow in arrows
    )


def test_a_function_without_heavy_operators_has_a_page(tmp_path):
    planned = sporax.plan(lambda x: x + 1, jnp.ones(8), devices=8, hardware="h100")
    planned.report(tmp_path / "plan.html")
    assert Page((tmp_path / "plan.html").read_text(encoding="utf-8")).count["svg"] == 2


def test_lines_of_tables_break_between_layouts_and_between_parts_of_names(trained, tmp_path):
    trained.report(tmp_path / "plan.html")
    text = (tmp_path / "plan.html").read_text(encoding="utf-8")
    assert "Cell.<wbr>network._<wbr>backbone.<wbr>product</td>" in text
    assert "[b,\N{NO-BREAK SPACE}-]" in text


def test_colours_are_for_light_and_dark_and_text_in_boxes_is_always_dark(trained, tmp_path):
    trained.report(tmp_path / "plan.html")
    text = (tmp_path / "plan.html").read_text(encoding="utf-8")
    assert "@media (prefers-color-scheme: dark)" in text
    assert "g > text.name, g > text.inside { fill: #222 }" in text
    fills = re.findall(r'style="fill:(#[0-9a-f]+)" class="box"', text)
    assert fills
    assert all(min(int(fill[n : n + 2], 16) for n in (1, 3, 5)) > 150 for fill in fills if len(fill) == 7)


def test_bytes_stand_beside_the_box_they_leave_each_on_a_line_of_its_own(trained, tmp_path):
    trained.report(tmp_path / "plan.html")
    text = (tmp_path / "plan.html").read_text(encoding="utf-8")
    places = re.findall(r'<text x="([\d.]+)" y="([\d.]+)" class="bytes">', text)
    assert places
    assert len(set(places)) == len(places)


def test_the_headline_comes_first_and_search_and_zoom_need_nothing_from_elsewhere(trained, tmp_path):
    trained.report(tmp_path / "plan.html")
    text = (tmp_path / "plan.html").read_text(encoding="utf-8")
    assert text.index("predicted time of a step") < text.index("Each device") < text.index("<svg")
    page = Page(text)
    assert (page.count["input"], page.count["button"], page.count["script"]) == (1, 3, 1)
    # The script finds what it works on: one picture, and the rows of the table.
    assert text.count('<div class="graph">') == text.count('<div class="listed">') == 1


def test_titles_keep_the_names_of_variables_and_rows_their_share_of_the_time(tmp_path):
    shapes = {
        "gate_projection": jax.ShapeDtypeStruct((256, 1024), "float32"),
        "down_projection": jax.ShapeDtypeStruct((1024, 256), "float32"),
    }

    def step(layers, x):
        for layer in layers:
            x = jax.nn.relu(x @ layer["gate_projection"]) @ layer["down_projection"]
        return layers, x

    args = [shapes] * 4, jax.ShapeDtypeStruct((64, 256), "float32")
    planned = sporax.plan(step, *args, devices=8, hardware="h100", mode="propagation", carry={0: 0})
    planned.report(tmp_path / "plan.html")
    text = (tmp_path / "plan.html").read_text(encoding="utf-8")
    titles = re.findall(r'class="name">([^<]*)<', text)
    assert any("gate_projection" in title for title in titles)
    assert any("down_projection" in title for title in titles)
    assert all(len(title.replace("&#x27;", "'")) <= 36 for title in titles)
    shares = set(re.findall(r"([\d.]+%)</td></tr>", text[text.index("Table of operators") :]))
    view = planned.summary()
    assert shares == {f"{row.seconds / view.headline.seconds:.1%}" for row in view.operators}


def test_figures_stand_on_paper_and_quantities_in_one_line(trained, tmp_path):
    trained.report(tmp_path / "plan.html")
    text = (tmp_path / "plan.html").read_text(encoding="utf-8")
    assert text.count('class="paper"/><text') == text.count('class="bytes"') > 0
    assert "\N{NO-BREAK SPACE}B" in text
    assert re.search(r"B: 1, kB: 1e3", text)
