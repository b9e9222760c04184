"""Draws the schedules of docs/pipeline.md: `python tools/make_pipeline_pictures.py`."""

from pathlib import Path

from sporax.planner.pipeline.generators import generate
from sporax.planner.pipeline.simulate import simulate, uniform_costs
from sporax.report.render.pipeline_timeline import svg, times_of

FOLDER = Path(__file__).parents[1] / "docs" / "images" / "pipeline"
CHUNKS = {"gpipe": 1, "1f1b": 1, "interleaved_1f1b": 2, "zero_bubble_h1": 1, "zero_bubble_v": 2}


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, chunks in CHUNKS.items():
        schedule = generate(name, 4, 8, chunks)
        outcome = simulate(schedule, uniform_costs(schedule))
        times = {task: span for task, span in times_of(outcome).items() if task.micro >= 0}
        title = f"{name}, 4 stages, 8 micro batches: bubble {outcome.bubble_share:.1%}"
        (FOLDER / f"{name}.svg").write_text(f"{svg([(title, times)])}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
