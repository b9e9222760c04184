"""Record what the transforms of sound of the real MindSpore wheel give for the cases of `tests/mindspore/dataset/audio_cases.py`.

Run with the Python of an environment that has the wheel: python tools/golden/make_audio.py
"""

import json
import sys
from pathlib import Path

TESTS = Path(__file__).parents[2] / "tests" / "mindspore" / "dataset"
sys.path.insert(0, str(TESTS))

import audio_cases
import mindspore.dataset.audio

if __name__ == "__main__":
    recorded = audio_cases.record(mindspore.dataset.audio)
    lines = ",\n".join(f"{json.dumps(case)}: {json.dumps(value)}" for case, value in recorded.items())
    (TESTS / "golden_audio.json").write_text(f"{{\n{lines}\n}}\n")
