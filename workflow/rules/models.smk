rule prompts:
    output:
        train=f"{ROOT}/prompts/train.json",
        evaluation=f"{ROOT}/prompts/evaluation.json",
    params:
        identity=stage_identity(STUDY, "prompts"),
    log:
        f"{ROOT}/logs/prompts.log",
    benchmark:
        f"{ROOT}/benchmarks/prompts.tsv"
    resources:
        mem_mb=1000,
        runtime=10,
    conda:
        "../../envs/jagg.yaml"
    shell:
        "jagg prompts {config[study]:q} --out $(dirname {output.train}) > {log} 2>&1"


rule pretrain_backbone:
    output:
        f"{ROOT}/models/{{backbone}}/model.json",
    params:
        identity=identity_of_backbone,
    log:
        f"{ROOT}/logs/pretrain/{{backbone}}.log",
    benchmark:
        f"{ROOT}/benchmarks/pretrain/{{backbone}}.tsv"
    # The longest jobs of the study, and everything waits for them.
    priority: 10
    threads: STUDY.resources.threads
    resources:
        mem_mb=STUDY.resources.memory_mb,
        runtime=STUDY.resources.runtime_min,
        gpu=STUDY.resources.gpus,
    conda:
        "../../envs/jagg.yaml"
    shell:
        "jagg pretrain {config[study]:q} --backbone {wildcards.backbone} --out $(dirname {output}) > {log} 2>&1"


rule pretrain_scorer:
    output:
        f"{ROOT}/scorers/{{metric}}/scorer.json",
    params:
        identity=identity_of_scorer,
    log:
        f"{ROOT}/logs/pretrain/{{metric}}.log",
    benchmark:
        f"{ROOT}/benchmarks/pretrain/{{metric}}.tsv"
    priority: 5
    threads: STUDY.resources.threads
    resources:
        mem_mb=STUDY.resources.memory_mb,
        runtime=STUDY.resources.runtime_min,
        gpu=STUDY.resources.gpus,
    conda:
        "../../envs/jagg.yaml"
    shell:
        "jagg pretrain {config[study]:q} --scorer {wildcards.metric} --out $(dirname {output}) > {log} 2>&1"
