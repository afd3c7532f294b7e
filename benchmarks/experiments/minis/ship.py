"""Put a finished encoder into the package: weights, tokenizer, and a card with its scores.

    python ship.py mini-x RUN/model --results ../../results/minis.json

The card is `card-NAME.md` of this folder with the tables of the results put in.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

HOME = Path(__file__).parents[3] / "src" / "crosslift" / "models" / "minis"
NAMES = {
    "sib200": "SIB-200 topics, accuracy",
    "massive-intent": "MASSIVE intents, accuracy",
    "massive-slots": "MASSIVE slots, F1",
    "panx": "PAN-X entities, F1",
    "xsid-intent": "xSID intents, accuracy",
    "xsid-slots": "xSID slots, F1",
    "xnli": "XNLI (from 15k MNLI pairs), accuracy",
    "xquad": "XQuAD (from a SQuAD sample), F1",
}


def score(found: dict[str, float]) -> str:
    return f"{found['mean']:.1f} ± {found.get('sd', 0):.1f}"


def table(encoder: dict) -> str:
    lines = ["| task | English | other languages | seeds |", "| --- | --- | --- | --- |"]
    for task, one in encoder["tasks"].items():
        known, _, how = task.partition(", ")
        name = NAMES[known] + (f"; {how}" if how else "")
        lines.append(f"| {name} | {score(one['english'])} | {score(one['targets'])} | {len(one['seeds'])} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("model", type=Path)
    parser.add_argument("--results", type=Path, required=True)
    arguments = parser.parse_args()
    home = HOME / arguments.name
    home.mkdir(parents=True, exist_ok=True)
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        shutil.copyfile(arguments.model / name, home / name)
    settings = json.loads((arguments.model / "tokenizer_config.json").read_text(encoding="utf-8"))
    settings = {k: v for k, v in settings.items() if k not in ("backend", "is_local", "local_files_only")}
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"  # a name that every version of transformers knows
    (home / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    encoder = json.loads(arguments.results.read_text(encoding="utf-8"))["encoders"][arguments.name]
    card = Path(__file__).with_name(f"card-{arguments.name}.md").read_text(encoding="utf-8")
    (home / "README.md").write_text(card.replace("{scores}", table(encoder)), encoding="utf-8")
    print(f"{home}: {sum(p.stat().st_size for p in home.iterdir()) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
