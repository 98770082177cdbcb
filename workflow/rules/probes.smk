rule probe:
    input:
        study=ancient(f"{ROOT}/study.json"),
        run=f"{ROOT}/runs/{{backbone}}/{{algorithm}}/{STUDY.comparison.reference}/seed-{{seed}}/run.json",
        backbone=f"{ROOT}/models/{{backbone}}/model.json",
        scorers=expand(
            f"{ROOT}/scorers/{{metric}}/scorer.json", metric=STUDY.reward.weights
        ),
        prompts=expand(f"{ROOT}/prompts/{{split}}.json", split=["train", "evaluation"]),
    output:
        f"{ROOT}/probes/{{backbone}}/{{algorithm}}/seed-{{seed}}.parquet",
    log:
        f"{ROOT}/logs/probe/{{backbone}}.{{algorithm}}.seed-{{seed}}.log",
    benchmark:
        f"{ROOT}/benchmarks/probe/{{backbone}}.{{algorithm}}.seed-{{seed}}.tsv"
    conda:
        "../../envs/jagg.yaml"
    threads: STUDY.resources.threads
    resources:
        mem_mb=STUDY.resources.memory_mb,
        runtime=STUDY.resources.runtime_min,
        gpu=STUDY.resources.gpus,
    params:
        identity=identity_of_probe,
    shell:
        "jagg probe {input.study} --backbone {wildcards.backbone} --algorithm {wildcards.algorithm}"
        " --seed {wildcards.seed} --out {output} > {log} 2>&1"
