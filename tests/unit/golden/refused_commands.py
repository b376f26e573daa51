"""Commands on studies and reports that are refused: one on each line, without `hpml-jobs`.

A new refusal is a new line here: `make golden` writes what it says.
"""

OF_COMMANDS = {
    "Words that are no command": """
        sumbit
        archive full
        choose full
        completion bash
        export full wandb
        fetch
        predict full gpus=8
        record full
        remove full --yes
        report full
        help nothing
        help help
        help gpu
        help stratgy
        train.py
        start
        lab
        batch 64
        full
        full collect
        m gpus=1,2
        −m gpus=1,2
        gpus=2 plan
        gpus=2 --plan
        --status full
        collect --quiet
        --gpus 2
        --loader-workers=2
        nothing-like-a-command
        """,
    "Options": """
        status --nothing
        status full --gpus 2
        status full full full
        status full outputs=
        status --outputs
        resubmit full --failed --minutes=abc
        resubmit full --failed --minutes=0
        resubmit full --failed --mem=0
        collect full --name Ada
        collect full --json --open
        status full --watch --all
        doctor --gpus 1 --no-job
        compare
        compare full
        compare full full
        compare full repeats --fail-if-slower much
        compare full repeats --fail-if-slower 0.05
        compare full repeats --fail-if-slower 1%
        compare full repeats --save x.json
        compare full --save full
        """,
    "Studies": """
        status nothing
        status ful
        status ../x
        status 'a*' 'b*'
        status full 'no-such-*'
        status full ddp
        status outputs/full/cells
        status outputs/ful
        collect ./outputs/full/report
        status --outputs nowhere
        status newer
        status damaged
        list full
        logs full -f
        resubmit full 'no-such-*'
        resubmit empty --failed
        compare full nothing
        compare full lab
        compare full ./nothing.json
        compare full file.json
        compare full failed
        gpus=1 study=newer
        study=full
        """,
    "Keys of a report": """
        collect full baseline=smallest
        collect full repeats
        collect full nothing=1
        collect full --to full-of-files
        collect full --handin full-of-files
        collect full --to file
        collect full baseline
        collect full min_efficiency=70
        collect full min_efficiency=x
        collect full min_efficiency=0
        collect full deadline_min=10
        collect full epochs 3
        collect full epochs=
        collect full epochs=2.5
        collect full epochs=0
        collect full epochs=1 epochs=2
        collect full efficiency=0.7
        collect full gpu_hours=nan epochs=3
        collect full gpu_hours=3
        """,
    "Files to import": """
        import
        import a.csv b.csv study=x
        import full.csv
        import full.csv study=x gpus=2
        import full.csv study=
        import full.csv study=x study=y
        import full.csv study=../x
        import full.csv study=x batch_is=global
        import full.csv study=full
        import nothing.csv study=x
        import . study=x
        """,
}
