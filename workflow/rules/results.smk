rule tables:
    input:
        scores=scores_of_study,
        histories=histories_of_study,
        runs=runs_of_study,
    output:
        scores=f"{ROOT}/tables/scores.parquet",
        history=f"{ROOT}/tables/history.parquet",
        differences=f"{ROOT}/tables/paired_differences.csv",
        passes=f"{ROOT}/tables/backward_passes.csv",
        study=f"{ROOT}/study.json",
    params:
        identity=stage_identity(STUDY, "tables"),
    log:
        f"{ROOT}/logs/tables.log",
    benchmark:
        f"{ROOT}/benchmarks/tables.tsv"
    resources:
        mem_mb=4000,
        runtime=60,
    conda:
        "../../envs/jagg.yaml"
    shell:
        "jagg tables {config[study]:q} > {log} 2>&1"


rule report:
    input:
        scores=f"{ROOT}/tables/scores.parquet",
        history=f"{ROOT}/tables/history.parquet",
        differences=f"{ROOT}/tables/paired_differences.csv",
        passes=f"{ROOT}/tables/backward_passes.csv",
        study=f"{ROOT}/study.json",
    output:
        f"{ROOT}/report.html",
    params:
        identity=stage_identity(STUDY, "report"),
    log:
        f"{ROOT}/logs/report.log",
    benchmark:
        f"{ROOT}/benchmarks/report.tsv"
    resources:
        mem_mb=4000,
        runtime=60,
    conda:
        "../../envs/jagg.yaml"
    shell:
        "jagg report {config[study]:q} > {log} 2>&1"


# One serial writer: training never talks to MLflow, files are the truth and the store is a view of them.
rule track:
    input:
        report=f"{ROOT}/report.html",
        study=f"{ROOT}/study.json",
    output:
        f"{ROOT}/tracking.json",
    params:
        identity=stage_identity(STUDY, "track"),
    log:
        f"{ROOT}/logs/track.log",
    benchmark:
        f"{ROOT}/benchmarks/track.tsv"
    resources:
        mem_mb=4000,
        runtime=60,
    conda:
        "../../envs/jagg.yaml"
    shell:
        "jagg track {config[study]:q} > {log} 2>&1"
