# The resolved study, which every job reads, is written before the first job starts. Jobs depend on their own part of it
# through their identity, so the file itself is ancient to them. Its rule has no parameters that could change: Snakemake
# does not look for changes in jobs behind one that will run, and does not follow an ancient file to them either.
onstart:
    write_json(PATHS.config, STUDY.model_dump(mode="json"))


rule study:
    output:
        update(f"{ROOT}/study.json"),
    log:
        f"{ROOT}/logs/study.log",
    benchmark:
        f"{ROOT}/benchmarks/study.tsv"
    conda:
        "../../envs/jagg.yaml"
    resources:
        mem_mb=100,
        runtime=5,
    shell:
        "test -s {output} 2> {log}"


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


# A model's record says that its folder may be replaced. Snakemake removes outputs before it starts a job, and would
# leave a folder without a record that `jagg pretrain` takes for someone else's; outputs to be updated stay until then.
rule pretrain_backbone:
    input:
        study=ancient(f"{ROOT}/study.json"),
    output:
        update(f"{ROOT}/models/{{backbone}}/model.json"),
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
        update(f"{ROOT}/scorers/{{metric}}/scorer.json"),
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


# No run starts before every scorer has scored an image, the held-out ones included. The record is ancient to the runs,
# so a new metric trains nothing again.
rule preflight:
    input:
        study=ancient(f"{ROOT}/study.json"),
        scorers=expand(f"{ROOT}/scorers/{{metric}}/scorer.json", metric=STUDY.scorers),
    output:
        update(f"{ROOT}/scorers/preflight.json"),
    log:
        f"{ROOT}/logs/preflight.log",
    benchmark:
        f"{ROOT}/benchmarks/preflight.tsv"
    priority: 5
    conda:
        "../../envs/jagg.yaml"
    threads: STUDY.resources.threads
    resources:
        mem_mb=STUDY.resources.memory_mb,
        runtime=STUDY.resources.runtime_min,
        gpu=STUDY.resources.gpus,
    params:
        identity=stage_identity(STUDY, "preflight"),
    shell:
        "jagg preflight {input.study} --out {output} > {log} 2>&1"
