"""The authors' own code gives the same score for the same small checkpoint.

Their package runs in a process of its own: it silences user warnings, wants packages that scoring does not need, and
lacks its tokenizer's vocabulary file, which is put beside a copy of its vendored open_clip here.
"""

import json
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from subprocess import run

import numpy as np
import pytest
from PIL import Image

from jagg.pretrain.captions import base_captions, draw
from jagg.scorers import load_scorer

REFERENCE = """
import json, sys, types
from pathlib import Path
sys.modules["turtle"] = types.ModuleType("turtle")  # factory.py imports a name from it and never uses it
sys.modules["turtle"].forward = None
sys.path.insert(0, sys.argv[1])
import torch
from PIL import Image
from vendored import add_model_config, create_model_and_transforms
from vendored.tokenizer import SimpleTokenizer
assert "hpsv2" not in sys.modules and "open_clip" not in sys.modules
work = Path(sys.argv[1])
add_model_config(work / "embedded.json")
model, _, preprocess = create_model_and_transforms(
    "embedded", light_augmentation=True, output_dict=True, with_score_predictor=False, with_region_predictor=False
)
model.load_state_dict(torch.load(work / "checkpoint.pt", weights_only=True)["state_dict"])
model.eval()
tokenizer = SimpleTokenizer(str(work / "merges.txt.gz"))
scores = []
for index, prompt in enumerate(json.loads((work / "prompts.json").read_text())):
    ids = [tokenizer.encoder["<start_of_text>"], *tokenizer.encode(prompt), tokenizer.encoder["<end_of_text>"]]
    text = torch.zeros(1, len(model.positional_embedding), dtype=torch.long)
    text[0, : len(ids)] = torch.tensor(ids)
    with torch.no_grad():
        outputs = model(preprocess(Image.open(work / f"{index}.png")).unsqueeze(0), text)
        scores.append(float(torch.diagonal(outputs["image_features"] @ outputs["text_features"].T)))
print(json.dumps(scores))
"""
SIZES = [(32, 32), (96, 96), (80, 48), (40, 72)]


@pytest.fixture
def reference_folder(tiny_scorer_folders, tmp_path):
    package = find_spec("hpsv2")
    if package is None:
        pytest.skip("the authors' hpsv2 package is not installed")
    folder = tiny_scorer_folders["hpsv2"][1]
    shutil.copytree(Path(package.origin).parent / "src" / "open_clip", tmp_path / "vendored")
    vocabulary = Path(find_spec("open_clip").origin).parent / "bpe_simple_vocab_16e6.txt.gz"
    shutil.copy(vocabulary, tmp_path / "vendored")
    shutil.copy(folder / "HPS_v2.1_compressed.pt", tmp_path / "checkpoint.pt")
    shutil.copy(folder / "bpe_merges.txt.gz", tmp_path / "merges.txt.gz")
    config = json.loads((folder / "open_clip_config.json").read_text())["model_cfg"]
    (tmp_path / "embedded.json").write_text(json.dumps(config))
    return tmp_path


def test_the_vendored_code_gives_the_same_scores(reference_folder, tiny_scorer_folders):
    captions = base_captions()[:: 120 // len(SIZES)][: len(SIZES)]
    prompts = [caption.text for caption in captions]
    images = []
    for index, (caption, size) in enumerate(zip(captions, SIZES)):
        image = Image.fromarray(draw(caption, np.random.default_rng(index), 96)).resize(size)
        image.save(reference_folder / f"{index}.png")
        images.append(np.asarray(image))
    (reference_folder / "prompts.json").write_text(json.dumps(prompts))
    command = [sys.executable, "-c", REFERENCE, str(reference_folder)]
    result = run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    expected = json.loads(result.stdout.splitlines()[-1])
    scorer = load_scorer(*tiny_scorer_folders["hpsv2"])
    values = [scorer.score(images=image[None], prompts=[prompt])[0] for image, prompt in zip(images, prompts)]
    np.testing.assert_allclose(values, expected, atol=1e-6)
