"""What 8 bits cost a student: its accuracy on MASSIVE intents as ONNX, in full and in 8 bits.

    CROSSLIFT_DATA=… python benchmarks/experiments/distill/int8.py runs/keep/student-frozen-cnn-{language} \
        --languages de,es,th --out benchmarks/results/distill-int8.json

The runs are those of `keep.py`. Each is exported to a folder, and predicted with by the `predict.py` that lies there.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import crosslift as xl
from crosslift.models.export import INT8, ONNX, export_onnx
from crosslift.models.predict_onnx import Predictor
from crosslift.runs.fit import open_run

BATCH = 64


def accuracy(folder: Path, file: str, examples: xl.Examples) -> float:
    """Return the accuracy of one exported model in %."""
    predict, right = Predictor(folder, file), 0
    assert examples.labels is not None
    for start in range(0, len(examples), BATCH):
        said = predict(list(examples.texts[start : start + BATCH]))
        gold = examples.labels[start : start + BATCH]
        right += sum(one["prediction"] == label for one, label in zip(said, gold, strict=True))
    return round(100 * right / len(examples), 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="a student's run, with {language} in its place")
    parser.add_argument("--languages", default="de,es,th")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/distill-int8.json"))
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for language in arguments.languages.split(","):
        test = xl.load("massive-intent", language=language, split="test")
        with tempfile.TemporaryDirectory() as draft:
            folder = Path(draft) / "onnx"
            export_onnx(open_run(arguments.run.format(language=language)).model, folder)
            rows.append({"language": language, "texts": len(test)})
            for name, file in (("onnx", ONNX), ("int8", INT8)):
                rows[-1][f"{name}_accuracy"] = accuracy(folder, file, test)
                rows[-1][f"{name}_megabytes"] = round((folder / file).stat().st_size / 1e6, 2)
        print(json.dumps(rows[-1]), flush=True)
    arguments.out.write_text(json.dumps({"set": "massive-intent", "rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
