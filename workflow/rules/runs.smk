# A run keeps its resumable state and its checkpoints beside these outputs, so a restart does not remove them.
rule train:
    input:
        study=ancient(f"{ROOT}/study.json"),
        backbone=f"{ROOT}/models/{{backbone}}/model.json",
        scorers=expand(
            f"{ROOT}/scorers/{{metric}}/scorer.json", metric=STUDY.reward.weights
        ),
        prompts=f"{ROOT}/prompts/train.json",
        preflight=ancient(f"{ROOT}/scorers/preflight.json"),
    output:
        run=f"{RUN}/run.json",
        history=f"{RUN}/history.parquet",
    log:
        f"{ROOT}/logs/train/{RUN_LOG}.log",
    benchmark:
        f"{ROOT}/benchmarks/train/{RUN_LOG}.tsv"
    conda:
        "../../envs/jagg.yaml"
    threads: STUDY.resources.threads
    resources:
        mem_mb=STUDY.resources.memory_mb,
        runtime=STUDY.resources.runtime_min,
        gpu=STUDY.resources.gpus,
    params:
        identity=identity_of_run,
    shell:
        "jagg train {input.study} --backbone {wildcards.backbone} --algorithm {wildcards.algorithm}"
        " --arm {wildcards.arm} --seed {wildcards.seed} --out $(dirname {output.run}) > {log} 2>&1"
