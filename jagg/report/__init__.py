"""Tables, figures and the report page, all made from the files of finished runs."""

from jagg.config import Study
from jagg.keys import StudyPaths


def build_report(study: Study, paths: StudyPaths, date: str | None = None) -> None:
    """Write figures/ and report.html from tables/ (see `jagg.report.page`)."""
    from jagg.report.page import build

    build(study, paths, date)
