"""The table's way takes rows as people write them: what it cannot express has a reason, all else a figure that can be."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from _published_table import _SHAPES, read_run
from _published_time import work_of
from published_runs import main

COLUMNS = "model,chip,devices,precision,seq,global_batch,micro_batch,dp,tp,pp,vp,cp,ep,zero,recompute,tokens_s_dev,note".split(
    ","
)
ROW = dict(zip(COLUMNS, "tiny,H100,8,bf16,4096,32,1,4,1,2,2,1,1,3,none,9000,".split(","), strict=True))


def predicted(tmp_path, monkeypatch, *changes, options=(), columns=COLUMNS):
    rows = [ROW | change for change in changes]
    lines = [",".join(columns), *(",".join(f'"{row[key]}"' for key in columns) for row in rows)]
    (tmp_path / "runs.csv").write_text("\n".join(lines) + "\n")
    models = tmp_path / "own.csv"
    models.write_text(
        "model,layers,hidden,ffn,heads,kv_heads,vocab,gated\ntiny,16,2048,8192,16,16,32000,1\nbad,x,,,,,,\nhalf,2\n"
    )
    files = ["--runs", tmp_path / "runs.csv", "--models", models, "--json", tmp_path / "out.json"]
    monkeypatch.setattr(sys, "argv", ["published_runs.py", *map(str, files), *options])
    main()
    found = json.loads((tmp_path / "out.json").read_text())
    assert [entry["row"] for entry in found] == [*range(len(rows))]
    return found


WRONG = [
    ({"model": "nobody's"}, "in neither table"),
    ({"model": "bad"}, "not the shape of a decoder"),
    ({"model": "half"}, "not the shape of a decoder"),
    ({"chip": "abacus"}, "no profile of the chip 'abacus'"),
    ({"devices": ""}, "'devices' must begin with a positive number"),
    ({"seq": "many"}, "'seq' must begin with a positive number, but is 'many'"),
    ({"micro_batch": "0"}, "'micro_batch' must begin with a positive number"),
    ({"tp": "1.5"}, "'tp' must be an integer"),
    ({"tp": "2"}, "data 4 x tensor 2 x stages 2 x context 1 are not 8 devices"),
    ({"vp": "12"}, "2 stages of 12 chunks"),
    ({"global_batch": "2"}, "a batch of 2 is less than"),
    ({"precision": "fp31"}, "the precision 'fp31' is none of"),
    ({"precision": "fp8", "chip": "a100"}, "has no rate of products of fp8"),
    ({"note": "stages 4+4+8"}, "lists 3 stages, the plan has 2"),
    ({"note": "stages 8+8, recompute 1,2,3"}, "not one number per stage"),
    ({"note": "optimizer offload 1/2"}, "not one number per stage"),
]


def test_what_cannot_be_expressed_has_a_reason(tmp_path, monkeypatch):
    for (change, reason), entry in zip(
        WRONG, predicted(tmp_path, monkeypatch, *(change for change, _ in WRONG)), strict=True
    ):
        assert reason in entry["reason"], change
        assert entry["tokens_per_second_per_device"] is entry["peak_bytes"] is entry["fits"] is None


def test_letters_marks_of_unknown_and_missing_columns_are_read(tmp_path, monkeypatch):
    changes = [
        {}, {"model": "Tiny", "chip": " h100", "precision": "BF16"}, {"precision": "fp8 (tensorwise)"}, {"dp": "?", "ep": ""},
        {"tokens_s_dev": ""}, {"recompute": "?"}, {"micro_batch": "64"}, {"note": "2 stages 8 layers each"},
    ]  # fmt: skip
    found = predicted(tmp_path, monkeypatch, *changes)
    weights = 2 * 16 * (4 * 2048**2 + 3 * 2048 * 8192) / 8
    for entry in found:
        assert entry["reason"] == ""
        assert 3e3 < entry["tokens_per_second_per_device"] < 1e5
        assert weights < entry["peak_bytes"]
        assert entry["fits"] == (entry["peak_bytes"] < 80 * 2**30)
    assert len({entry["seconds"] for entry in (found[0], found[1], found[3], found[4])}) == 1
    (short,) = predicted(tmp_path, monkeypatch, {"devices": "4"}, columns=COLUMNS[:8])
    assert short["fits"]


@pytest.mark.parametrize("keys", ["chip", "software", "model", "chip+software+model"])
def test_a_table_of_one_chip_is_held_out(tmp_path, monkeypatch, keys):
    found = predicted(tmp_path, monkeypatch, {}, {"tokens_s_dev": ""}, options=("--holdout", keys))
    assert found[0]["seconds"] == found[1]["seconds"] > 0


def test_experts_are_padded_and_their_gradients_cross_nodes(tmp_path, monkeypatch):
    experts = {
        "model": "qwen3-30b-a3b",
        "devices": "64",
        "dp": "64",
        "pp": "",
        "vp": "",
        "ep": "8",
        "zero": "1",
        "global_batch": "64",
    }
    plain, padded, near = predicted(
        tmp_path, monkeypatch, experts, experts | {"note": "capacity 1.25"}, experts | {"devices": "8", "dp": "8", "global_batch": "8"}
    )  # fmt: skip
    products = [entry["parts"]["products"] for entry in (plain, padded)]
    assert 1.1 < products[1] / products[0] < 1.25
    assert plain["parts"]["weights and gradients"] > 0.05 > near["parts"]["weights and gradients"]


def test_policies_compute_again_what_they_do_not_keep(tmp_path, monkeypatch):
    names = (
        "none",
        "minimal_with_context",
        "save_dot_with_context_except_mlp",
        "save_dot_except_mlp",
        "save_qkv_proj",
        "full",
    )
    found = predicted(tmp_path, monkeypatch, *({"recompute": name} for name in names))
    seconds, peaks = ([entry[key] for entry in found] for key in ("seconds", "peak_bytes"))
    assert seconds == sorted(seconds)
    assert len({*seconds}) == len(names)
    assert peaks[1:5] == sorted(peaks[1:5], reverse=True)


def test_eager_programs_and_small_heads_take_longer(tmp_path, monkeypatch):
    eager, compiled = predicted(tmp_path, monkeypatch, {"note": "eager"}, {})
    assert eager["seconds"] > compiled["seconds"]
    shape = "shape (layers, hidden, ffn, heads, kv, vocab, gated): 16 2048 8192 {0} {0} 32000 1"
    small, large = predicted(tmp_path, monkeypatch, *({"note": shape.format(heads)} for heads in (32, 16)))
    assert small["parts"]["attention"] > 1.3 * large["parts"]["attention"]


EXPERTS = {
    "model": "qwen3-235b-a22b", "chip": "H100", "devices": "256", "dp": "32", "pp": "8", "vp": "1", "ep": "32", "zero": "1",
    "micro_batch": "1", "global_batch": "1024", "source": "NVIDIA-NeMo/Megatron-Bridge",
}  # fmt: skip


def test_experts_cost_what_their_software_moves(tmp_path, monkeypatch):
    changes = [
        {}, {"chip": "B200"}, {"chip": "GB200"}, {"source": "Primus"}, {"chip": "v5p"}, {"chip": "v5p", "source": "tpu-recipes"},
    ]  # fmt: skip
    found = predicted(tmp_path, monkeypatch, *(EXPERTS | change for change in changes), columns=[*COLUMNS, "source"])
    behind, plain, near, waiting, fused, sorting = (entry["parts"] for entry in found)
    assert plain["memory-bound"] > 1.1 * near["memory-bound"]
    assert sorting["memory-bound"] > 1.1 * fused["memory-bound"]
    # Each copy of a token is sent; what is longer than the computing of another micro batch shows.
    assert behind["other collectives"] < 0.8 * waiting["other collectives"]
    computing = behind["products"] + behind["attention"] + behind["memory-bound"]
    hidden = waiting["other collectives"] - behind["other collectives"]
    assert 0.5 * computing < hidden < (1 - 32 / 148) * computing * 1.05


@pytest.mark.parametrize(
    ("source", "again", "num_bytes"), [("Primus", "none", 124), ("Primus", "full", 168), ("tpu-recipes", "none", 42)]
)
def test_biases_of_experts_are_read_and_written_by_row(source, again, num_bytes):
    run = read_run(
        0,
        ROW | EXPERTS | {"model": "gpt-oss-120b", "pp": "4", "dp": "64", "source": source, "recompute": again},
        _SHAPES,
    )
    bare = replace(run, decoder=replace(run.decoder, biased=False))
    rows = 4096 * 4 * 2880 * (36 / 4)
    expected = rows * num_bytes / run.profile.memory_bandwidth
    assert work_of(run).traffic - work_of(bare).traffic == pytest.approx(expected)


def test_a_release_that_hides_more_is_quicker(tmp_path, monkeypatch):
    row = EXPERTS | {"model": "deepseek-v3", "chip": "GB300", "precision": "mxfp8"}
    newer = row | {"source": "Megatron-Bridge 26.06"}
    changes = (row, newer, newer | {"precision": "bf16"}, row | {"precision": "bf16"})
    found = predicted(tmp_path, monkeypatch, *changes, columns=[*COLUMNS, "source"])
    old, new, wide, old_wide = (entry["parts"] for entry in found)
    assert wide == old_wide
    assert old["attention"] / new["attention"] == pytest.approx(1.38)
    # Less is sent than computed meanwhile: of the time, the processors that send are missing.
    assert new["other collectives"] == pytest.approx(32 / 148 * old["other collectives"], rel=0.1)
    assert new["memory-bound"] < 0.95 * old["memory-bound"]


RECIPES = [
    ("deepseek-v3", "GB200", 1.0), ("deepseek-v3", "B300", None), ("gpt-oss-120b", "GB200", 1.38), ("gpt-oss-120b", "B300", None),
    ("qwen3-235b-a22b", "GB200", 1.38), ("qwen3-235b-a22b", "B300", None), ("qwen3-30b-a3b", "B300", 1.38), ("kimi-k2", "GB300", None),
]  # fmt: skip


@pytest.mark.parametrize(("model", "chip", "attention"), RECIPES)
def test_recipes_of_one_graph_are_known_by_model_and_chip(model, chip, attention):
    row = ROW | EXPERTS | {"model": model, "chip": chip, "precision": "mxfp8", "recompute": "per recipe"}
    old, new = (
        read_run(0, row | {"source": f"Megatron-Bridge {release}"}, _SHAPES).software for release in ("26.04", "26.06")
    )
    assert not old.graphs
    assert old.gates
    assert (new == old) is (attention is None)
    if attention is not None:
        assert (new.graphs, new.experts_behind, new.gates, new.attention) == (True, True, False, attention)


def test_a_recipe_that_computes_norms_and_gates_again_does_so_where_memory_would_do_without(tmp_path, monkeypatch):
    row = EXPERTS | {
        "model": "gpt-oss-120b",
        "devices": "64",
        "dp": "64",
        "pp": "1",
        "ep": "64",
        "recompute": "per recipe",
    }
    less, more = predicted(
        tmp_path, monkeypatch, *(row | {"chip": chip} for chip in ("GB300", "GB200")), columns=[*COLUMNS, "source"]
    )
    assert less["fits"]
    assert more["fits"]
    assert more["parts"]["memory-bound"] > 1.1 * less["parts"]["memory-bound"]
    assert more["peak_bytes"] < less["peak_bytes"]


def test_the_least_is_computed_again_that_fits(tmp_path, monkeypatch):
    row = EXPERTS | {
        "recompute": "?",
        "model": "qwen3-30b-a3b",
        "chip": "H200",
        "devices": "8",
        "dp": "8",
        "pp": "1",
        "ep": "8",
    }
    nothing, modules, everything = predicted(
        tmp_path, monkeypatch, *(row | {"micro_batch": str(size)} for size in (1, 3, 8)), columns=[*COLUMNS, "source"]
    )
    assert nothing["fits"]
    assert modules["fits"]
    assert modules["parts"]["products"] == pytest.approx(nothing["parts"]["products"])
    assert modules["parts"]["memory-bound"] > nothing["parts"]["memory-bound"]
    assert everything["parts"]["products"] > 1.2 * modules["parts"]["products"]
    (eager,) = predicted(
        tmp_path, monkeypatch, row | {"micro_batch": "4", "source": "Automodel"}, columns=[*COLUMNS, "source"]
    )
    assert eager["parts"]["products"] == pytest.approx(everything["parts"]["products"])
