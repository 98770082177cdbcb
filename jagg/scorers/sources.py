"""From a scorer's configuration to a folder of files on this machine, with checked weights."""

from pathlib import Path

from jagg.config import EmbeddedScorer, FolderModel, HubModel, Scorer
from jagg.errors import InputError
from jagg.records import file_sha256, read_json

MANIFEST = "scorer.json"


def model_folder(config: Scorer, folder: Path, files: list[str]) -> Path:
    """The folder that holds the model's files; `folder` is the scorer's own among the study's results.

    Raises:
        InputError: the hub cannot be reached.
    """
    source = config.source
    if isinstance(source, HubModel):
        return hub_folder(source, files)
    return Path(source.path) if isinstance(source, FolderModel) else folder


def check_built(config: Scorer, folder: Path) -> None:
    """Check that a scorer folder's manifest, which is written last, is there and was made from this configuration.

    A full-size scorer works without a folder of its own.

    Raises:
        InputError: an embedded scorer is not built, or the folder was made from another source.
    """
    manifest = folder / MANIFEST
    if not manifest.is_file():
        if isinstance(config.source, EmbeddedScorer):
            raise InputError(
                "an embedded scorer is not built", where=manifest, fix="build it: jagg pretrain CONFIG --scorer METRIC"
            )
        return
    wanted = {"family": config.family, "source": config.source.model_dump(mode="json")}
    record = read_json(manifest)
    found = {key: record.get(key) for key in wanted} if isinstance(record, dict) else record
    if found != wanted:
        raise InputError(
            "a scorer was built from another configuration",
            where=manifest,
            expected=wanted,
            got=found,
            fix="remove the folder and run jagg pretrain again",
        )


def hub_folder(model: HubModel, files: list[str]) -> Path:
    """The local snapshot of a hub repository's files (glob patterns), fetched if they are not in the cache.

    Raises:
        InputError: the files are neither in the cache nor to be had from the hub.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

    wanted = {"repo_id": model.repo, "revision": model.revision, "allow_patterns": files}
    try:
        return Path(snapshot_download(**wanted))
    except (HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled) as error:
        raise InputError(
            "a model on the hub cannot be had",
            where=f"{model.repo} at revision {model.revision}",
            expected=", ".join(files),
            got=str(error).splitlines()[0],
            fix="connect to the network (and log in where the repository asks for it), or fill the local cache first",
        ) from error


def checked_weights(config: Scorer, folder: Path, path: Path) -> str:
    """SHA-256 of the weight file, equal to the one in the configuration and in the scorer's manifest, if any.

    Raises:
        InputError: the file is missing or has another hash.
    """
    if not path.is_file():
        raise InputError("a scorer's weight file is missing", where=path, fix="complete the folder or build it again")
    found = file_sha256(path)
    recorded = read_json(folder / MANIFEST).get("weight_sha256") if (folder / MANIFEST).is_file() else None
    for owner, expected in (("the configuration", config.weight_sha256), (str(folder / MANIFEST), recorded)):
        if expected is not None and expected != found:
            raise InputError(
                "a scorer's weight file is not the expected one",
                where=path,
                expected=f"{expected} ({owner})",
                got=found,
                fix="fetch or build the weights again, or correct the hash",
            )
    return found


def scorer_label(config: Scorer, model: str, image_size: int) -> str:
    """model-resolution; small models say that they are embedded ones."""
    kind = "embedded-" if isinstance(config.source, EmbeddedScorer) else ""
    return f"{kind}{model}-{image_size}"


def source_model(config: Scorer) -> str:
    """The model's name as its source gives it: the repository, the folder, or the family of an embedded one."""
    source = config.source
    if isinstance(source, HubModel):
        return source.repo.rpartition("/")[2].lower()
    return Path(source.path).resolve().name.lower() if isinstance(source, FolderModel) else config.family
