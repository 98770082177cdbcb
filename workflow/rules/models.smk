# The resolved study, which every job reads. Jobs depend on their own part of it through their identity, so the file
# itself is ancient to them; only the summaries of the whole study depend on it as a file.
rule study:
    output:
        f"{ROOT}/study.json",
    log:
        f"{ROOT}/logs/study.log",
    benchmark:
        f"{ROOT}/benchmarks/study.tsv"
    conda:
        "../../envs/jagg.yaml"
    resources:
        mem_mb=100,
        runtime=5,
    params:
        content=canonical_json(STUDY),
    shell:
        "printf '%s' {params.content:q} > {output} 2> {log}"


rule prompts:
    input:
        study=ancient(f"{ROOT}/study.json"),
    output:
        train=f"{ROOT}/prompts/train.json",
        evaluation=f"{ROOT}/prompts/evaluation.json",
    log:
        f"{ROOT}/logs/prompts.log",
    benchmark:
        f"{ROOT}/benchmarks/prompts.tsv"
    conda:
        "../../envs/jagg.yaml"
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        identity=stage_identity(STUDY, "prompts"),
    shell:
        "jagg prompts {input.study} --out $(dirname {output.train}) > {log} 2>&1"


rule pretrain_backbone:
    input:
        study=ancient(f"{ROOT}/study.json"),
    output:
        f"{ROOT}/models/{{backbone}}/model.json",
    log:
        f"{ROOT}/logs/pretrain/{{backbone}}.log",
    benchmark:
        f"{ROOT}/benchmarks/pretrain/{{backbone}}.tsv"
    # The longest jobs of the study, and everything waits for them.
    priority: 10
    conda:
        "../../envs/jagg.yaml"
    threads: STUDY.resources.threads
    resources:
        mem_mb=STUDY.resources.memory_mb,
        runtime=STUDY.resources.runtime_min,
        gpu=STUDY.resources.gpus,
    params:
        identity=identity_of_backbone,
    shell:
        "jagg pretrain {input.study} --backbone {wildcards.backbone} --out $(dirname {output}) > {log} 2>&1"


rule pretrain_scorer:
    input:
        study=ancient(f"{ROOT}/study.json"),
    output:
        f"{ROOT}/scorers/{{metric}}/scorer.json",
    log:
        f"{ROOT}/logs/pretrain/{{metric}}.log",
    benchmark:
        f"{ROOT}/benchmarks/pretrain/{{metric}}.tsv"
    priority: 5
    conda:
        "../../envs/jagg.yaml"
    threads: STUDY.resources.threads
    resources:
        mem_mb=STUDY.resources.memory_mb,
        runtime=STUDY.resources.runtime_min,
        gpu=STUDY.resources.gpus,
    params:
        identity=identity_of_scorer,
    shell:
        "jagg pretrain {input.study} --scorer {wildcards.metric} --out $(dirname {output}) > {log} 2>&1"
