rule tables:
    input:
        study=ancient(f"{ROOT}/study.json"),
        scores=scores_of_study,
        histories=histories_of_study,
        runs=runs_of_study,
        probes=probes_of_study,
    output:
        scores=f"{ROOT}/tables/scores.parquet",
        history=f"{ROOT}/tables/history.parquet",
        differences=f"{ROOT}/tables/paired_differences.csv",
        passes=f"{ROOT}/tables/backward_passes.csv",
        runs=f"{ROOT}/tables/runs.csv",
        quality=f"{ROOT}/tables/gradient_quality.csv",
        stress=f"{ROOT}/tables/gradient_stress.csv",
        calibration=f"{ROOT}/tables/routing_calibration.csv",
        pareto=f"{ROOT}/tables/pareto.csv",
    log:
        f"{ROOT}/logs/tables.log",
    benchmark:
        f"{ROOT}/benchmarks/tables.tsv"
    conda:
        "../../envs/jagg.yaml"
    resources:
        mem_mb=4000,
        runtime=60,
    params:
        identity=stage_identity(STUDY, "tables"),
    shell:
        "jagg tables {input.study} > {log} 2>&1"


rule report:
    input:
        scores=f"{ROOT}/tables/scores.parquet",
        history=f"{ROOT}/tables/history.parquet",
        differences=f"{ROOT}/tables/paired_differences.csv",
        passes=f"{ROOT}/tables/backward_passes.csv",
        runs=f"{ROOT}/tables/runs.csv",
        quality=f"{ROOT}/tables/gradient_quality.csv",
        stress=f"{ROOT}/tables/gradient_stress.csv",
        calibration=f"{ROOT}/tables/routing_calibration.csv",
        pareto=f"{ROOT}/tables/pareto.csv",
        study=ancient(f"{ROOT}/study.json"),
    output:
        f"{ROOT}/report.html",
    log:
        f"{ROOT}/logs/report.log",
    benchmark:
        f"{ROOT}/benchmarks/report.tsv"
    conda:
        "../../envs/jagg.yaml"
    resources:
        mem_mb=4000,
        runtime=60,
    params:
        identity=stage_identity(STUDY, "report"),
    shell:
        "jagg report {input.study} > {log} 2>&1"


# One serial writer: training never talks to MLflow, files are the truth and the store is a view of them.
rule track:
    input:
        report=f"{ROOT}/report.html",
        study=ancient(f"{ROOT}/study.json"),
    output:
        f"{ROOT}/tracking.json",
    log:
        f"{ROOT}/logs/track.log",
    benchmark:
        f"{ROOT}/benchmarks/track.tsv"
    conda:
        "../../envs/jagg.yaml"
    resources:
        mem_mb=4000,
        runtime=60,
    params:
        identity=stage_identity(STUDY, "track"),
    shell:
        "jagg track {input.study} > {log} 2>&1"
