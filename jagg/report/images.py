"""Images of the same prompt and the same noise across arms, beside the untouched model's."""

import base64
from dataclasses import dataclass
from io import BytesIO

from PIL import Image

from jagg.errors import InputError
from jagg.keys import RunKey, image_name
from jagg.prompts import read_prompts
from jagg.report.data import Row, StudyData
from jagg.stats.join import Cell

PROMPTS_SHOWN = 4
LARGEST_SIDE = 192
_SMALLEST_SIDE = 96
_GAP = 4


@dataclass(frozen=True)
class Grid:
    """One cell's images: a column for the untouched model and for each arm, a row for each prompt."""

    cell: Cell
    seed: int
    columns: list[str]
    prompts: list[str]
    images: list[list[Image.Image]]
    rows: list[Row]

    @property
    def name(self) -> str:
        return f"images-{self.cell[0]}-{self.cell[1]}"

    def sheet(self) -> Image.Image:
        """All images on one sheet, in the page's order."""
        width, height = self.images[0][0].size
        size = (len(self.columns) * (width + _GAP) - _GAP, len(self.prompts) * (height + _GAP) - _GAP)
        sheet = Image.new("RGB", size, "white")
        for y, row in enumerate(self.images):
            for x, image in enumerate(row):
                sheet.paste(image, (x * (width + _GAP), y * (height + _GAP)))
        return sheet


def grids(data: StudyData) -> list[Grid]:
    """A grid of each cell that has a seed whose runs of all arms are complete: image 0 of the first prompts.

    Raises:
        InputError: the prompts cannot be read, or an evaluation image of a complete run is missing.
    """
    prompts = read_prompts(data.paths.prompts("evaluation"))[:PROMPTS_SHOWN]
    complete = set(data.complete_keys())
    found = []
    for cell in data.cells:
        seeds = [s for s in data.study.seeds if all(RunKey(*cell, arm, s) in complete for arm in data.study.arms)]
        if not seeds:
            continue
        keys = {arm: RunKey(*cell, arm, seeds[0]) for arm in data.study.arms}
        columns = [("untouched model", keys[data.reference], 0)]
        columns += [(arm, key, data.last_step) for arm, key in keys.items()]
        rows = [
            {
                **key.row(),
                "column": column,
                "step": step,
                "prompt_id": prompt.id,
                "image_index": 0,
                "prompt": prompt.text,
            }
            for prompt in prompts
            for column, key, step in columns
        ]
        images = [[_thumbnail(data, key, step, prompt.id) for _, key, step in columns] for prompt in prompts]
        found.append(Grid(cell, seeds[0], [name for name, _, _ in columns], [p.text for p in prompts], images, rows))
    return found


def _thumbnail(data: StudyData, key: RunKey, step: int, prompt_id: str) -> Image.Image:
    """The image for display: small ones enlarged by whole pixels, large ones reduced."""
    path = data.paths.run(key).images(step) / image_name(prompt_id, 0)
    if not path.exists():
        raise InputError(
            "an evaluation image is missing", where=path, fix="sample the run's images again (jagg sample)"
        )
    with Image.open(path) as file:
        image = file.convert("RGB")
    side = max(image.size)
    if side < _SMALLEST_SIDE:
        factor = -(-_SMALLEST_SIDE // side)
        return image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)
    image.thumbnail((LARGEST_SIDE, LARGEST_SIDE))
    return image


def png_bytes(image: Image.Image) -> bytes:
    """An image as PNG."""
    buffer = BytesIO()
    image.save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()


def data_uri(image: Image.Image) -> str:
    """An image as part of a page."""
    return "data:image/png;base64," + base64.b64encode(png_bytes(image)).decode()
