# Images and checkpoints lie beside the scores and are not outputs: a change of the scorers samples nothing again.
rule evaluate:
    input:
        study=ancient(f"{ROOT}/study.json"),
        run=f"{RUN}/run.json",
        backbone=f"{ROOT}/models/{{backbone}}/model.json",
        scorers=expand(f"{ROOT}/scorers/{{metric}}/scorer.json", metric=STUDY.scorers),
        prompts=f"{ROOT}/prompts/evaluation.json",
    output:
        expand(
            f"{RUN}/scores/step-{{step}}.parquet", step=CHECKPOINTS, allow_missing=True
        ),
    log:
        f"{ROOT}/logs/evaluate/{RUN_LOG}.log",
    benchmark:
        f"{ROOT}/benchmarks/evaluate/{RUN_LOG}.tsv"
    conda:
        "../../envs/jagg.yaml"
    threads: STUDY.resources.threads
    resources:
        mem_mb=STUDY.resources.memory_mb,
        runtime=STUDY.resources.runtime_min,
        gpu=STUDY.resources.gpus,
    params:
        identity=identity_of_evaluation,
        steps=step_options(),
    shell:
        "jagg evaluate {input.study} --run $(dirname {input.run}) {params.steps} > {log} 2>&1"
