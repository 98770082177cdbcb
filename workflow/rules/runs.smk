# A run keeps its resumable state and its checkpoints beside these outputs, so a restart does not remove them.
rule train:
    input:
        backbone=f"{ROOT}/models/{{backbone}}/model.json",
        scorers=expand(f"{ROOT}/scorers/{{metric}}/scorer.json", metric=STUDY.reward.weights),
        prompts=f"{ROOT}/prompts/train.json",
    output:
        run=f"{RUN}/run.json",
        history=f"{RUN}/history.parquet",
    params:
        identity=identity_of_run,
    log:
        f"{ROOT}/logs/train/{RUN_LOG}.log",
    benchmark:
        f"{ROOT}/benchmarks/train/{RUN_LOG}.tsv"
    threads: STUDY.resources.threads
    resources:
        mem_mb=STUDY.resources.memory_mb,
        runtime=STUDY.resources.runtime_min,
        gpu=STUDY.resources.gpus,
    conda:
        "../../envs/jagg.yaml"
    shell:
        "jagg train {config[study]:q} --backbone {wildcards.backbone} --algorithm {wildcards.algorithm}"
        " --arm {wildcards.arm} --seed {wildcards.seed} --out $(dirname {output.run}) > {log} 2>&1"
