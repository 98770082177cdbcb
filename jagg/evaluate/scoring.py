"""From folders of images to rows of scores."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from jagg.config import Study
from jagg.errors import InputError, unknown_name
from jagg.evaluate.signature import short_sha256
from jagg.keys import IMAGES_MANIFEST, RunKey, StudyPaths, parse_image_name
from jagg.prompts import Prompt, read_prompts
from jagg.records import SCORES, environment, read_json, table_of
from jagg.scorers.protocol import Truncates, score_bytes

_FOREIGN = RunKey("", "", "", 0)


class StudyScorers:
    """The scorers of a study, loaded once for any number of folders.

    Raises:
        InputError: an unknown metric.
    """

    def __init__(self, study: Study, metrics: Iterable[str]) -> None:
        from jagg.scorers import load_scorer

        paths = StudyPaths.of(study)
        self._study = study
        self._scorers = {}
        for metric in metrics:
            if metric not in study.scorers:
                raise unknown_name("metric", metric, study.scorers, where=f"study {study.study}")
            self._scorers[metric] = load_scorer(study.scorers[metric], paths.scorer(metric), _device())
        self._environment = environment()["lock_sha256"][:12]

    def score_folder(self, images: Path, prompts_path: Path) -> pa.Table:
        """Rows of the scores table for one folder of PNG images named <prompt_id>_<image_index>.png.

        A folder that `jagg sample` made brings its run key, step and signature; a foreign folder has none.

        Raises:
            InputError: no images, an image that is not a PNG, a prompt without images or images without a prompt, or
                prompts other than those that the images were sampled from.
        """
        manifest = read_json(images / IMAGES_MANIFEST) if (images / IMAGES_MANIFEST).exists() else {}
        prompts = {prompt.id: prompt for prompt in read_prompts(prompts_path)}
        _check_prompts(images, manifest, prompts, prompts_path)
        files = _image_files(images, prompts, prompts_path)
        if not files:
            if manifest.get("run_status") == "diverged":
                return table_of([], SCORES)
            raise InputError("no images to score", where=images, expected="<prompt_id>_<image_index>.png", got="none")
        key = manifest.get("key", _FOREIGN.row())
        step = manifest.get("step", 0)
        signature = manifest.get("signature", "")
        rows: list[dict[str, Any]] = []
        for metric, scorer in self._scorers.items():
            texts = [prompt.text for prompt in prompts.values()]
            cut = dict(zip(prompts, scorer.truncated(texts))) if isinstance(scorer, Truncates) else {}
            batch_size = self._study.scorers[metric].batch_size
            for start in range(0, len(files), batch_size):
                chunk = files[start : start + batch_size]
                pixels = _read_images([path for path, _, _ in chunk])
                values = score_bytes(scorer, images=pixels, prompts=[prompts[prompt].text for _, prompt, _ in chunk])
                rows += [
                    {
                        **key,
                        "step": step,
                        "prompt_id": prompt,
                        "image_index": index,
                        "metric": metric,
                        "value": float(value),
                        "unit": scorer.unit,
                        "scorer": scorer.name,
                        "signature": signature,
                        "environment": self._environment,
                        "prompt_group": prompts[prompt].group,
                        "truncated": cut.get(prompt),
                    }
                    for (_, prompt, index), value in zip(chunk, values)
                ]
        return table_of(rows, SCORES)


def _device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _check_prompts(images: Path, manifest: dict[str, Any], prompts: dict[str, Prompt], prompts_path: Path) -> None:
    """Equal ids may stand for other texts, so sampled images name the hash of their prompts."""
    made_from = re.search(r"prompts=(\S+)", manifest.get("signature", ""))
    given = short_sha256(list(prompts.values()))
    if made_from and made_from.group(1) != given:
        raise InputError(
            "the images were sampled from other prompts",
            where=f"{images} and {prompts_path}",
            expected=f"prompts {made_from.group(1)}",
            got=f"prompts {given}",
            fix="score with the configuration that the images were sampled with",
        )


def _image_files(folder: Path, prompts: dict[str, Prompt], prompts_path: Path) -> list[tuple[Path, str, int]]:
    if not folder.is_dir():
        raise InputError("no such folder of images", where=folder, expected="a folder of PNG files")
    foreign = sorted(path.name for path in folder.iterdir() if path.suffix.lower() in {".jpg", ".jpeg", ".webp"})
    if foreign:
        raise InputError(
            "images are not lossless",
            where=folder,
            expected="PNG files only",
            got=", ".join(foreign[:5]),
            fix="compression shifts scores: save the images again from their source, as PNG",
        )
    files = [(path, *parse_image_name(path.name)) for path in sorted(folder.glob("*.png"))]
    seen = {prompt for _, prompt, _ in files}
    if files and seen != set(prompts):
        raise InputError(
            "images and prompts do not match",
            where=f"{folder} and {prompts_path}",
            expected="images of every prompt, and only of these",
            got=f"prompts without images: {_few(set(prompts) - seen)}; "
            f"images without a prompt: {_few(seen - set(prompts))}",
        )
    return files


def _few(names: set[str]) -> str:
    listed = sorted(names)
    return (", ".join(listed[:5]) + (", ..." if len(listed) > 5 else "")) or "none"


def _read_images(paths: list[Path]) -> Any:
    import numpy as np
    from PIL import Image, UnidentifiedImageError

    images = []
    for path in paths:
        try:
            with Image.open(path) as image:
                if image.format != "PNG" or image.mode != "RGB":
                    raise InputError(
                        "not an RGB PNG", where=path, expected="PNG, RGB", got=f"{image.format}, {image.mode}"
                    )
                images.append(np.asarray(image))
        except (OSError, UnidentifiedImageError) as error:
            raise InputError("cannot read an image", where=path, expected="a complete PNG", got=error) from error
    sizes = {image.shape for image in images}
    if len(sizes) > 1:
        raise InputError("images differ in size", where=paths[0].parent, expected="one size", got=sorted(sizes))
    return np.stack(images)
