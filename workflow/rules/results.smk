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
        differences=report(
            f"{ROOT}/tables/paired_differences.csv",
            caption="../report/paired_differences.rst",
            category="Tables",
        ),
        passes=report(
            f"{ROOT}/tables/backward_passes.csv",
            caption="../report/backward_passes.rst",
            category="Tables",
        ),
        runs=f"{ROOT}/tables/runs.csv",
        quality=f"{ROOT}/tables/gradient_quality.csv",
        stress=f"{ROOT}/tables/gradient_stress.csv",
        calibration=f"{ROOT}/tables/routing_calibration.csv",
        pareto=f"{ROOT}/tables/pareto.csv",
        curves=f"{ROOT}/tables/curves.csv",
        costs=f"{ROOT}/tables/costs.csv",
        equal_cost=f"{ROOT}/tables/equal_cost.csv",
        attrition=f"{ROOT}/tables/attrition.csv",
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


rule audit:
    input:
        claims=CLAIMS,
        scores=f"{ROOT}/tables/scores.parquet",
        history=f"{ROOT}/tables/history.parquet",
        differences=f"{ROOT}/tables/paired_differences.csv",
        passes=f"{ROOT}/tables/backward_passes.csv",
        quality=f"{ROOT}/tables/gradient_quality.csv",
        study=ancient(f"{ROOT}/study.json"),
    output:
        report(
            f"{ROOT}/tables/claims.csv",
            caption="../report/claims.rst",
            category="Tables",
        ),
    log:
        f"{ROOT}/logs/audit.log",
    benchmark:
        f"{ROOT}/benchmarks/audit.tsv"
    conda:
        "../../envs/jagg.yaml"
    resources:
        mem_mb=4000,
        runtime=60,
    params:
        identity=stage_identity(STUDY, "audit"),
    shell:
        "jagg audit {input.claims} --tables $(dirname {output}) --out {output} > {log} 2>&1"


rule report:
    input:
        claims=f"{ROOT}/tables/claims.csv",
        scores=f"{ROOT}/tables/scores.parquet",
        history=f"{ROOT}/tables/history.parquet",
        differences=f"{ROOT}/tables/paired_differences.csv",
        passes=f"{ROOT}/tables/backward_passes.csv",
        runs=f"{ROOT}/tables/runs.csv",
        quality=f"{ROOT}/tables/gradient_quality.csv",
        stress=f"{ROOT}/tables/gradient_stress.csv",
        calibration=f"{ROOT}/tables/routing_calibration.csv",
        pareto=f"{ROOT}/tables/pareto.csv",
        curves=f"{ROOT}/tables/curves.csv",
        costs=f"{ROOT}/tables/costs.csv",
        equal_cost=f"{ROOT}/tables/equal_cost.csv",
        attrition=f"{ROOT}/tables/attrition.csv",
        study=ancient(f"{ROOT}/study.json"),
    output:
        report(
            f"{ROOT}/report.html",
            caption="../report/study.rst",
            category="Report",
        ),
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


# One serial writer: training never talks to MLflow, files are the truth and the store is a view of them. The record says
# which run of the store is whose and which MLflow wrote it, so it must not be removed before the job.
rule track:
    input:
        report=f"{ROOT}/report.html",
        study=ancient(f"{ROOT}/study.json"),
    output:
        update(f"{ROOT}/tracking.json"),
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
