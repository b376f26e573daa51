"""Keys that are refused on a login node: a command on each line, without `hpml-jobs`.

A new refusal is a new line here: `make golden` writes what it says.
"""

OF_KEYS = {
    "Words that cannot be read": """
        gpus:2
        "gpus 2"
        "gpus = 2"
        gpus 2
        gpus=1 2
        =3
        batch=32 gpus
        -m gpus=1, 2
        +nonsense=3
        +foo=1
        +cluster.foo=1
        ~workload
        ~cluster.nothing
        gpus=2 gpus=4
        gpus=1,2
        -m gpus=range(3,1)
        -m strategy=glob(*)
        -m gpus=interval(1,4)
        hydra/launcher=submitit_slurm
        hydra.launcher.gpus_per_node=4
        cluster@other=greene
        "gpus='"
        data.root=${nothing}
        """,
    "Keys that do not exist": """
        GPUS=2
        gpu=2
        limit=2
        run=3
        model=resnet50
        batch_size=32
        budget=3
        cluster.limit=2
        cluster.acount=x
        workload.arg.width=1
        cluster.gpu_types.v100.x=1
        cluster=local cluster.account=x
        cluster=slurm cluster.partition=
        """,
    "Keys and choices that went": """
        path=auto
        cudnn_benchmark=false
        bucket_cap_mb=25
        gradient_as_bucket_view=true
        static_graph=true
        reshard=false
        baseline=ddp
        try_batch=false
        quiet_minutes=10
        cluster.qos=high
        +cluster.qos=high
        cluster.comment=x
        cluster.constraint=ib
        cluster.wckey=x
        cluster.requeue=false
        cluster.account_example=x
        cluster.interactive_partition=x
        cluster.partition_rule=required
        cluster.known_as=[x]
        cluster.max_array_size=10
        cluster.max_minutes=10
        cluster.array_parallelism=1
        cluster.link_gb_per_s=450
        cluster.peak_tflop_per_s=989
        grid=ladder
        ladder.start=8
        retries=2
        recipe=auto
        recipe=cosine
        recipe.final_share=0.1
        +recipe.final_share=0.1
        recipe=warmup
        grid=accumulate
        grid=buckets
        grid=gpt
        grid=lab_dp
        grid=precision
        grid=workers
        grid=hw5 batch=128
        grid=hw5 -m gpus=1,2
        """,
    "Words that a key does not have": """
        strategy=horovod
        strategy=DDP
        strategy=dpp
        device=gpu
        precision=float16
        device=CPU
        device=tpu
        sync_buffers=maybe
        precision=int8
        compile=maybe
        loader=gpu
        protocol=half
        protocol=imported
        cluster.isolate=perhaps
        cluster=grene
        workload=resnet
        workload=restnet50
        "workload={name:x}"
        "recipe=[plain,goyal]"
        "grid={a:1}"
        workload.data=imagenet
        workload.model=resnet
        workload.loss=mse
        workload.optimizer=adam
        workload.schedule=cosine
        recipe=goyall
        grid=labs
        name=mine
        only_on=cpu
        launcher=bash script=train.py
        """,
    "Whole numbers": """
        gpus=0
        gpus=-1
        gpus=two
        gpus=2.5
        gpus=2.0
        gpus=
        gpus=~1
        -m gpus=[1,2]
        -m gpus=1,two
        nodes=0
        batch=0
        batch=1e2
        batch=null
        threads=0
        seed=-1
        seed=9223372036854775808
        loader_workers=-1
        repeats=0
        minutes=0
        minutes=1:00:00
        minutes=0.5
        epochs=0
        protocol=full epochs=1
        iterations=1
        accumulate=0
        data.limit=0
        workload=synthetic workload.images=0
        workload.classes=0
        workload.image_size=0
        workload.parameters=0
        workload.test_batch=0
        workload=gpt_nano workload.layers=0
        workload=gpt_nano workload.context=-1
        cluster.mem_gb_per_gpu=-1
        cluster.gpu_types.v100=0
        """,
    "Numbers with a fraction": """
        probe_s=-1
        probe_s=nan
        probe_s=inf
        workload.lr=-1
        workload.momentum=-1
        workload.weight_decay=-1
        workload.optimizer=adamw workload.lr=0.001 workload.momentum=1
        recipe.warmup_epochs=-1
        quantize.percentile=0 quantize.calibration=1
        quantize.percentile=101 quantize.calibration=1
        cluster.gpu_hours_budget=-1
        cluster.confirm_gpu_hours=-1
        +cluster.cancel_below_utilization={gh*:101}
        """,
    "True or false, text and lists": """
        evaluate=yes
        evaluate=1
        outputs=
        outputs=~nobody_has_this_name/x
        gpus=1 study=../../x
        gpus=1 study=a/b
        gpus=1 study=..
        gpus=1 study=étude
        gpus=1 study=xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
        cluster.container=7
        recipe.drop_epochs=3
        workload.code=[{name:a.py,sha256:b}]
        +workload.code=[{name:a.py,sha256:b}]
        +workload.data_sha256=abc
        """,
    "Sweeps": """
        -m gpus=1 study=a,b
        -m minutes=1,2
        -m cluster.account=a,b
        -m cluster=greene,torch
        -m grid=lab,smoke
        -m batch=range(1,1000000000)
        -m gpus=1,2 seed=range(0,60000)
        repeats=1000000000
        -m gpus=1,2,4 nodes=1,2
        -m device=cpu,cuda workload=auto
        """,
    "GPUs and nodes": """
        gpus=5
        gpus=4 nodes=3
        -m gpus=1,2 nodes=2
        gpus=12
        gpus=3 nodes=3
        gpus=8 nodes=1
        loader_workers=100
        cluster.mem_gb_per_gpu=999
        """,
    "The batch and the length of a cell": """
        batch=64 global_batch=256
        global_batch=256 gpus=3
        global_batch=0
        iterations=9 data.limit=9
        iterations=9 epochs=3
        iterations=60 batch=512
        iterations=60 batch=20480
        gpus=4 batch=5121
        gpus=2 batch=1025 data.limit=2048
        gpus=2 accumulate=200
        largest_batch=auto
        """,
    "What auto finds": """
        gpus=auto grid=lab
        gpus=auto global_batch=256
        -m gpus=auto strategy=ddp,fsdp
        -m batch=auto seed=0,1
        gpus=auto device=cpu
        gpus=auto max_gpus=0
        gpus=auto max_gpus=2 rerun=true
        gpus=auto max_gpus=64
        gpus=auto gpus=4
        batch=auto max_gpus=8
        gpus=AUTO
        batch=auto min_efficiency=0
        batch=auto min_efficiency=1.2
        batch=auto gpu_hours=0
        batch=auto gpu_hours=0.1
        min_efficiency=0.8
        max_gpus=8
        nodes=auto
        batch=auto script=train.py
        repeats=auto gpus=auto grid=ladder
        """,
    "Strategies": """
        strategy=dp gpus=8
        strategy=dp gpus=2 nodes=2
        strategy=dp gpus=2 device=cpu
        strategy=single gpus=2
        gpus=2 strategy=dp accumulate=2
        gpus=2 strategy=dp compile=true
        gpus=2 strategy=fsdp channels_last=true
        gpus=2 strategy=zero1 workload.optimizer=m:f
        """,
    "Options that no cell uses": """
        gpus=1 set_epoch=false
        gpus=1 sync_buffers=off
        loader=device loader_workers=4
        quantize.per_channel=true
        quantize.percentile=99
        window=5,9
        launcher=srun
        """,
    "The training path": """
        precision=fp16 device=cpu
        precision=tf32 device=cpu
        compile=reduce-overhead device=cpu
        precision=bf16 gpu_type=v100
        precision=tf32 gpu_type=v100
        workload=gpt_nano channels_last=true
        """,
    "BatchNorm's buffers": """
        gpus=2 sync_buffers=syncbn
        gpus=2 sync_buffers=syncbn protocol=lab device=cpu
        gpus=2 strategy=allreduce sync_buffers=on
        gpus=2 strategy=fsdp sync_buffers=on
        gpus=2 strategy=zero1 sync_buffers=off
        gpus=2 workload=gpt_nano sync_buffers=off
        """,
    "Recipes": """
        gpus=2 recipe=goyal recipe.warmup_epochs=9
        recipe.warmup_epochs=2
        recipe.reference_batch=0
        recipe.reference_batch=64
        recipe.drop_epochs=[2,1]
        recipe.drop_epochs=[5]
        recipe=goyal recipe.drop_epochs=[1,2] recipe.warmup_epochs=2 epochs=5
        workload.optimizer=adamw
        workload.schedule=m:f recipe=goyal
        workload.optimizer=m:f recipe=goyal epochs=90
        """,
    "Quantization": """
        quantize.calibration=0
        quantize.calibration=8
        gpus=2 quantize.calibration=8
        """,
    "Workloads": """
        workload.classes=2
        workload.image_size=64
        workload.parameters=7
        unit=tokens
        workload=synthetic workload.model=lenet workload.image_size=64
        +workload.padded_vocab=300
        +workload.width=8
        workload.args.width=8
        +workload.args.width=8
        workload=custom
        workload=custom workload.model=main.py
        workload=custom workload.model=m:f workload.data=m:f +workload.args.width=null
        workload=custom workload.model=m:f workload.data=m:f "+workload.args.width={a: 1}"
        workload=custom workload.model=m:f workload.data=m:f "workload.args={width: [1]}"
        workload=custom workload.model=m:f workload.data=m:f workload.args.width=[1,2]
        workload=custom workload.model=m:f workload.data=m:f +workload.args.classes=1
        workload=custom workload.model=m:f workload.data=m:f workload.optimizer=adamw
        """,
    "Workloads of tokens": """
        workload=gpt_nano workload.width=66
        workload=gpt_nano workload.width=3
        workload=gpt_nano workload.vocab=100
        workload=gpt_nano workload.padded_vocab=10
        workload=gpt_nano workload.heads=null
        workload=gpt_nano workload.data=digits
        workload=gpt_nano workload.model=lenet
        workload=gpt_nano workload.data=tokens
        workload=gpt_nano workload.images=50 batch=16
        workload=gpt_nano +workload.unit=images
        workload=gpt_nano workload.model=m:f workload.context=null
        workload=gpt_nano workload.model=m:f quantize.calibration=5
        """,
    "What a cluster refuses": """
        cluster=torch
        cluster=burst
        cluster=burst cluster.account=a cluster.partition=main cluster.shared_with_login=true
        cluster=burst cluster.account=a
        cluster=burst cluster.account=a gpu_type=a100 gpus=4 nodes=1 cluster.shared_with_login=true
        cluster.partition=nope
        "cluster.clusters='a,b'"
        cluster=ssh cluster.hosts=[]
        cluster=ssh cluster.hosts=[a,a]
        cluster=ssh hosts=me@a,b
        cluster=ssh hosts=a,b gpus=3
        cluster=ssh device=cpu hosts=a,b gpus=3 nodes=3
        gpu_type=h200
        gpu_type=RTX8000
        gpu_type=a100
        gpu_type=a100|h100
        gpu_type=any
        cluster=slurm
        gpu_type=v100 gpus=2 cluster.gpu_request=partition
        cluster.gpu_hours_budget=0.1
        """,
    "Options of sbatch": """
        +cluster.sbatch.gres=gpu:1
        +cluster.sbatch.array=1-2
        +cluster.sbatch.p=main
        +cluster.sbatch.J=name
        +cluster.sbatch.mem_per_cpu=1
        """,
    "Of several faults, the one that is said": """
        gpus=0 batch=0
        gpus=two cluster=grene
        gpus=1 set_epoch=false sync_buffers=off
        gpus=1 set_epoch=false cluster=torch
        batch=32 ladder.start=8 gpu_type=h200
        gpu_type=h200 study=../x
        gpu_type=h200 loader=device loader_workers=4
        study=../x gpus=12
        gpus=12 workload.classes=2
        gpus=5 workload.classes=2
        workload.classes=2 iterations=60 batch=512
        strategy=single gpus=2 window=5,9
        -m gpus=3,5 nodes=2 strategy=single
        -m gpus=1,2 iterations=5 batch=4 workload.classes=2
        -m loader_workers=null,2 workload.classes=2
        -m gpus=1 strategy=dp,ddp cluster.gpu_hours_budget=0.1
        global_batch=256 batch=64 gpus=2 cluster=torch
        gpus=2 workload.classes=2 minutes=99999
        """,
}
