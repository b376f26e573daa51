"""Commands on studies and reports that are refused: one on each line, without `hpml-jobs`.

A new refusal is a new line here: `make golden` writes what it says.
"""

OF_COMMANDS = {
    "Words that are no command": """
        sumbit
        watch mine
        watch --help
        archive full
        reference list
        refrence save golden
        grade course
        graed course
        graed
        help grade
        help nothing
        help help
        help gpu
        help stratgy
        help results
        train.py
        train.py --epochs 3
        python train.py --lr 0.1
        torchrun --nproc_per_node=2 train.py
        python
        results
        results --help
        start
        ls
        squeue
        strategies
        lab
        ddp
        batch 64
        full
        full collect
        outputs/full
        full.csv
        m gpus=1,2
        −m gpus=1,2
        gpus=2 –dry-run
        gpus=‘1,2’
        gpus=2 plan
        gpus=2 --plan
        --status full
        collect --quiet
        --gpus 2
        --loader-workers=2
        --dryrun gpus=2
        --predicted full
        nothing-like-a-command
        """,
    "Options": """
        status --nothing
        status full --gpus 2
        status full full full
        status full outputs=
        status --outputs
        status full --watch --every nan
        status full --watch --every x
        resubmit full --failed --minutes=abc
        resubmit full --failed --minutes=0
        resubmit full --failed --mem=0
        resubmit full --failed --retries 2
        report full --handin x --to y
        report full --name Ada
        report full --number N1 --to x
        init --print --to x
        list full --outputs outputs
        completion
        completion nothing
        compare
        compare full
        compare full full
        compare full repeats --drift full
        compare full repeats --fail-if-slower much
        compare full repeats --fail-if-slower 0.05
        compare full repeats --fail-if-slower 1%
        compare full repeats --save x
        compare full --save full
        export full wandb
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
        report ./outputs/full/report
        status --outputs nowhere
        status newer
        status damaged
        list nowhere
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
    "Removal": """
        remove
        remove nothing --yes
        remove full
        remove full full --yes
        remove 'f*' --yes
        remove damaged --yes
        remove newer --yes
        delete full
        """,
    "Keys of a report": """
        collect full baseline=smalest
        collect full baseline=
        collect full basline=single
        collect full baseline=single baseline=single
        collect full repeats
        report full nothing=1
        report full --to full-of-files
        report full --handin full-of-files
        report full --to file
        collect full --to file
        collect full baseline
        choose full min_efficiency=70
        choose full min_efficiency=x
        choose full min_efficiency=0
        choose full deadline
        choose deadline
        choose full epochs 3
        choose full epochs=
        choose full epochs=2.5
        choose full epochs=0
        choose full epochs=1 epochs=2
        choose full efficiency=0.7
        choose full runs=5
        choose full gpu_hours_budget=nan epochs=3
        choose full --preliminary
        choose failed
        predict full gpus=1
        predict full gpus=0
        predict full gpus=999999999
        predict full gpus=x
        predict full batch=0
        predict full nodes=0
        predict full cluster.gpus_per_node=0
        predict full cluster.gpus_per_node=2 gpus=8
        predict full gpus=8 nodes=3
        predict full gpus=8 nodes=1 cluster.gpus_per_node=4
        predict full nodes=7
        predict full strategy=single
        predict full strategy=fsdp
        predict full strategy=nothing
        predict full min_efficiency=0.7
        predict failed
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
        import nothing.tar.gz
        """,
}
