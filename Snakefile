from snakemake.utils import min_version

min_version("9.27")


include: "workflow/rules/common.smk"
include: "workflow/rules/models.smk"
include: "workflow/rules/runs.smk"
include: "workflow/rules/evaluation.smk"
include: "workflow/rules/probes.smk"
include: "workflow/rules/results.smk"


rule all:
    default_target: True
    input:
        f"{ROOT}/report.html",
        f"{ROOT}/tracking.json",
