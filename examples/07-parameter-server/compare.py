"""Run wide & deep twice, once with a server killed in the middle, and draw both loss curves.

    python examples/07-parameter-server/compare.py [--steps 120] [--out outputs/07-parameter-server]

Ends with an error when the curves differ in a single bit.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

TRAIN = Path(__file__).with_name("train.py")


def losses(out, name, steps, *flags):
    """Losses of rank 0 of one job."""
    file = out / f"{name}.json"
    command = [
        sys.executable,
        "-m",
        "sporax",
        "run",
        "--server_num",
        "2",
        "--worker_num",
        "2",
        "--log_dir",
        str(out / name),
    ]
    subprocess.run([*command, str(TRAIN), "--steps", str(steps), "--out", str(file), *flags], check=True)
    return json.loads(file.read_text(encoding="utf-8"))


def draw(path, calm, killed, step):
    """Both curves as a picture."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4))
    axes.plot(calm, label="no kill", linewidth=4, alpha=0.4)
    axes.plot(killed, label="server 0 killed")
    axes.axvline(step, color="grey", linestyle=":")
    axes.set(xlabel="step", ylabel="loss", title="wide & deep, 2 servers, 2 workers, synchronous")
    axes.legend()
    figure.savefig(path, dpi=120)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--out", type=Path, default=Path("outputs/07-parameter-server"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    middle = arguments.steps // 2
    calm = losses(arguments.out, "calm", arguments.steps)
    killed = losses(arguments.out, "killed", arguments.steps, "--kill", str(middle))
    draw(arguments.out / "losses.png", calm, killed, middle)
    print(f"equal to the last bit: {calm == killed}; picture in {arguments.out / 'losses.png'}")
    return 0 if calm == killed else 1


if __name__ == "__main__":
    sys.exit(main())
