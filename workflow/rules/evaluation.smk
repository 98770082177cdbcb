rule sample:
    input:
        study=ancient(f"{ROOT}/study.json"),
        run=f"{RUN}/run.json",
        backbone=f"{ROOT}/models/{{backbone}}/model.json",
        prompts=f"{ROOT}/prompts/evaluation.json",
    output:
        expand(
            f"{RUN}/images/step-{{step}}/images.json",
            step=CHECKPOINTS,
            allow_missing=True,
        ),
    log:
        f"{ROOT}/logs/sample/{RUN_LOG}.log",
    benchmark:
        f"{ROOT}/benchmarks/sample/{RUN_LOG}.tsv"
    conda:
        "../../envs/jagg.yaml"
    threads: STUDY.resources.threads
    resources:
        mem_mb=STUDY.resources.memory_mb,
        runtime=STUDY.resources.runtime_min,
        gpu=STUDY.resources.gpus,
    params:
        identity=identity_of_sampling,
        steps=step_options(),
    shell:
        "jagg sample {input.study} --run $(dirname {input.run}) {params.steps} > {log} 2>&1"


rule score:
    input:
        study=ancient(f"{ROOT}/study.json"),
        run=f"{RUN}/run.json",
        images=expand(
            f"{RUN}/images/step-{{step}}/images.json",
            step=CHECKPOINTS,
            allow_missing=True,
        ),
        scorers=expand(f"{ROOT}/scorers/{{metric}}/scorer.json", metric=STUDY.scorers),
        prompts=f"{ROOT}/prompts/evaluation.json",
    output:
        expand(
            f"{RUN}/scores/step-{{step}}.parquet", step=CHECKPOINTS, allow_missing=True
        ),
    log:
        f"{ROOT}/logs/score/{RUN_LOG}.log",
    benchmark:
        f"{ROOT}/benchmarks/score/{RUN_LOG}.tsv"
    conda:
        "../../envs/jagg.yaml"
    threads: STUDY.resources.threads
    resources:
        mem_mb=STUDY.resources.memory_mb,
        runtime=STUDY.resources.runtime_min,
        gpu=STUDY.resources.gpus,
    params:
        identity=stage_identity(STUDY, "score"),
        steps=step_options(),
    shell:
        "jagg score {input.study} --run $(dirname {input.run}) {params.steps} > {log} 2>&1"
