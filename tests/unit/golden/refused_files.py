"""Scripts, data, config files and timings that are refused, and the commands that read them.

A new refusal is a new line here: `make golden` writes what it says.
"""

OF_FILES = {
    "A machine without SLURM": """
        cluster=greene
        cluster=torch
        gpus=2 nodes=2
        gpus=2 device=cuda
        gpus=2 strategy=dp
        cluster=ssh hosts=a,b gpus=2 device=cpu
        --config-dir nowhere gpus=2
        run -m gpus=1,2
        run --index 3
        run cluster=ssh hosts=a,b device=cpu
        doctor --gpus 0
        fetch workload=nothing
        """,
    "Scripts": """
        script=
        script=trian.py
        script=wrong.py
        script=run.sh
        script=folder
        script=real.ipynb
        "script=train.py --epochs 3"
        "script=python train.py"
        script=train.py,wrong.py
        script=train.py "args=--lr 1"
        "script=-m nothere.train"
        "script=-m folder.missing"
        "script=-m deepspeed.launcher.runner"
        "script=deepspeed train.py"
        "script=/usr/bin/mpirun -n 2 train.py"
        script=horovod.py gpus=2
        script=mpi.py gpus=2
        script=train.py "args=--batch {batc}"
        script=train.py "args=--name 'x"
        script=train.py "args=--key [removed]"
        script=train.py window=50
        script=train.py window=1,50
        script=train.py launcher=python gpus=2 device=cpu
        script=train.py launcher=python gpus=2 nodes=2
        script=train.py precision=bf16
        script=train.py grid=lab
        script=train.py gpus=2 strategy=zero1
        script=train.py -m gpus=2 strategy=ddp,fsdp
        script=train.py -m batch=4,8
        script=train.py -m seed=1,2
        script=train.py "args=--data {data}" precision=bf16
        """,
    "Data": """
        workload=resnet18_cifar10 workload.data=folder data.root=nothing
        workload=resnet18_cifar10 workload.data=folder data.root=no-images
        workload=resnet18_cifar10 workload.data=folder data.root=empty-class
        workload=resnet18_cifar10 workload.data=folder data.root=no-test
        workload=resnet18_cifar10 workload.data=folder data.root=damaged
        workload=resnet18_cifar10 workload.data=folder data.root=pictures workload.classes=10
        workload=resnet18_cifar10 workload.data=folder data.root=pictures batch=3
        workload=gpt_nano workload.data=text_folder data.root=nothing
        workload=gpt_nano workload.data=text_folder data.root=short
        workload=gpt_nano workload.data=text_folder data.root=texts workload.parameters=7
        """,
    "Config files": """
        --config-dir configs grid=not-yaml
        --config-dir configs grid=blocks-no-list
        --config-dir configs grid=two-names
        --config-dir configs grid=unknown-key
        --config-dir configs grid=cluster
        --config-dir configs grid=no-device
        --config-dir configs grid=only-cuda device=cpu
        --config-dir configs grid=only-cuda -m device=cpu,cuda
        --config-dir configs workload=twice
        --config-dir configs workload=python
        --config-dir configs workload=deep
        --config-dir configs workload=a-list
        --config-dir configs workload=aliases
        --config-dir configs workload=directory
        --config-dir configs workload=classes
        --config-dir taken gpus=1
        """,
}

FILES = {
    "train.py": "import torch\n",
    "wrong.py": "def f(:\n",
    "run.sh": "#!/bin/bash\npython train.py\n",
    "real.ipynb": '{"cells": []}',
    "folder/__init__.py": "",
    "horovod.py": "import torch\nimport horovod.torch as hvd\n",
    "mpi.py": "import torch\nfrom mpi4py import MPI\n",
    "no-images/train/cats/notes.txt": "",
    "empty-class/train/cats/1.pgm": "P5 1 1 255 .",
    "empty-class/train/dogs/notes.txt": "",
    "no-test/train/cats/1.pgm": "P5 1 1 255 .",
    "no-test/test/dogs/1.pgm": "P5 1 1 255 .",
    "damaged/train/cats/1.jpg": "<html>",
    "damaged/train/cats/2.jpg": "",
    "pictures/train/cats/1.pgm": "P5 1 1 255 .",
    "pictures/train/dogs/1.pgm": "P5 1 1 255 .",
    "texts/train/a.txt": "a" * 1000,
    "short/train/a.txt": "a" * 1000,
    "short/test/a.txt": "b" * 40,
    "configs/grid/not-yaml.yaml": "blocks: [\n",
    "configs/grid/blocks-no-list.yaml": "blocks: {gpus: [1]}\n",
    "configs/grid/two-names.yaml": "blocks:\n- {name: [Q1, Q2], gpus: [1]}\n",
    "configs/grid/unknown-key.yaml": "blocks:\n- {gpu: [1]}\n",
    "configs/grid/cluster.yaml": "blocks:\n- {cluster: [greene]}\n",
    "configs/grid/no-device.yaml": "blocks: [{gpus: [1, 2], only_on: tpu}]\n",
    "configs/grid/only-cuda.yaml": "blocks: [{gpus: [1, 2], only_on: cuda}]\n",
    "configs/workload/twice.yaml": "lr: 1\nlr: 2\n",
    "configs/workload/python.yaml": "x: !!python/object:os.system 1\n",
    "configs/workload/deep.yaml": "[" * 2000,
    "configs/workload/a-list.yaml": "- a\n",
    "configs/workload/aliases.yaml": "a0: &a0 [1, 1]\n"
    + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9)),
    "configs/workload/directory.yaml/x": "",
    "configs/workload/classes.yaml": "defaults: [digits, _self_]\nname: mine\nclasses: 4\n",
    "taken/cluster/greene.yaml": "defaults: [slurm, _self_]\nname: greene\n",
}
"""The files of the folder in which the commands of `OF_FILES` are given."""

OF_DEFAULTS = (
    "clusters: {torhc: {account: a}}",
    "batch: [\n",
    "- a\n",
    "batches: 3\n",
    "cluster: greene\nclusters: {greene: {acount: x}}\n",
    "clusters: {local: {account: x}}\ncluster: local\n",
    "clusters: [greene]\n",
    "batch: many\n",
    "batch: 0\n",
    "probe_s: .nan\n",
    "outputs: ${nothing}\n",
    "a: &a [*a]\n",
    "cluster: grene\n",
)
"""Each content of the user's configuration file that `plan gpus=1` refuses."""

ROWS = "gpus,batch,epoch_s"
RATES = "gpus,batch,rate,unit"
HISTORY = "run,epoch,seconds"
STEPS = "run,step,timestamp"

OF_TIMINGS: dict[str, tuple[str, ...]] = {
    "Columns": (
        "study=new",
        "",
        f"{ROWS}\n",
        "1,32,48.612\n",
        "gpu,batch,epoch_s\n",
        "gpus,batch,time\n",
        "gpus,gpus,batch,epoch_s\n",
        "gpus,batch,epoch_s,node\n",
        "gpus,batch,epoch_s (ms)\n",
        "gpus,batch (global),epoch_s\n",
        "gpus,batch,images/s\n",
        ",gpus,batch,epoch_s\na,1,32,4\n",
        "gpus\0,batch,epoch_s\n",
        '"gpus,batch\n1,32',
        f"{ROWS}\n1,32,\udce9\n",
    ),
    "Rows": (
        "study=new images=50000",
        f"{ROWS}\n1,32,abc\n",
        f"{ROWS}\n1,32,\n",
        f"{ROWS}\n,32,9\n",
        f"{ROWS}\n1,32,0\n",
        f"{ROWS}\n1,32,nan\n",
        f"{ROWS}\n1,32,4'800\n",
        f"{ROWS}\n1.5,32,9\n",
        f"{ROWS}\n0,32,9\n",
        f"{ROWS}\n1,32,48,612\n",
        f'{ROWS}\n1,32,"48,612"\n',
        f"{ROWS}\n1,32\n",
        f"{ROWS}\n4,12501,9\n",
        f'{ROWS}\n1,32,"48\n',
        f"{ROWS}\n1,32,9\n1,32,9\n",
        f"{ROWS}\n2,32,9\n1,32,x\n2,32,9\n",
        f"{ROWS}\n" + "".join(f"1,{batch},x\n" for batch in range(1, 13)),
        f"{ROWS},strategy\n2,32,30,dpp\n",
        f"{ROWS},strategy\n2,32,30,single\n",
        f"{ROWS},strategy\n1,32,9,ddp\n1,32,9,dp\n",
        f"{ROWS},nodes\n2,32,30,3\n",
        f"{ROWS},train_s\n2,32,30,31\n",
        f"{ROWS},comm_s\n2,32,30,-1\n",
        f"{ROWS},accuracy\n2,32,30,640\n",
    ),
    "Rates": (
        "study=new",
        "gpus,batch,rate\n1,32,9\n",
        f"{RATES}\n1,32,9,img/s\n",
        f"{RATES}\n1,32,9,it/s\n",
        f"{RATES}\n1,32,0,images/s\n",
        f"{RATES}\n1,32,,images/s\n",
        f"{RATES}\n1,32,1e-9,images/s\n",
        "gpus,batch,epoch_s,rate,unit\n1,32,,,images/s\n",
        "gpus,batch,epoch_s,rate\n1,32,5,9\n",
        "gpus,batch,rate,train_s\n1,32,5,9\n",
        "gpus,batch,epoch_s,unit\n1,32,5,images/s\n",
        "gpus,batch,epoch_s,images,samples\n1,32,5,64,64\n",
        f"{RATES}\n1,32,9,images/s\n2,32,17,samples/s\n",
        f"{RATES},nodes,gpus_per_node\n16,32,9,images/s,1,8\n",
    ),
    "The global batch": ("study=new batch_is=global", f"{ROWS}\n3,128,9\n"),
    "Histories by epoch": (
        "study=new names='{gpus}gpu-b{batch}' images=12800",
        f"{HISTORY}\n1gpu-b1,1,3\n",
        f"{HISTORY}\n1gpu-b1,1,3\n1gpu-b1,1,4\n",
        f"{HISTORY}\n1gpu-b1,1,3\n1gpu-b1,2,\n",
        f"{HISTORY}\n1gpu-b1,1,3\n1gpu-b1,1.5,4\n",
        f"{HISTORY}\n1gpu-b1,0,30.1\n1gpu-b1,1,58.3\n1gpu-b1,2,86.6\n",
        f"{HISTORY}\n1gpu-b1,0,9\n1gpu-b1,1,1\n1gpu-b1,2,1\n1gpu-b1,3,5\n1gpu-b1,4,5\n",
        f"{HISTORY}\n,1,3\n,2,3\n",
        f"{HISTORY}\nx4gpu,1,3\n",
        f"{HISTORY}\n0gpu-b64,1,3\n0gpu-b64,2,3\n",
        f"{HISTORY},gpus\n4gpu-b32,1,2,4\n",
        f"{HISTORY},nodes\n1gpu-b1,1,3,1\n1gpu-b1,2,3,2\n",
        f"{HISTORY},accuracy\n1gpu-b1,1,3,\n1gpu-b1,2,3,640\n",
        "run,epochs,seconds\n",
        "epoch,step,timestamp\n1,1,1\n",
    ),
    "Histories by step": (
        "study=new names='{gpus}gpu-b{batch}'",
        "run,step,seconds\n1gpu-b1,1,3\n",
        "run,step,loss\n1gpu-b1,0,2\n",
        "run,step,global_step,timestamp\n",
        f"{STEPS}\n1gpu-b1,1,3\n1gpu-b1,2,\n",
        f"{STEPS}\n1gpu-b1,1,0e999\n",
        f"{STEPS}\n1gpu-b1,1,1:x\n",
        f"{STEPS}\n1gpu-b1,1,5\n1gpu-b1,1,6\n1gpu-b1,2,7\n",
        f"{STEPS}\n1gpu-b1,1,50.5\n1gpu-b1,2,41.5\n1gpu-b1,3,62.5\n",
        f"{STEPS}\n1gpu-b1,1,5.25\n1gpu-b1,2,6.25\n1gpu-b1,3,7.25\n1gpu-b1,4,8.25\n",
    ),
    "Names of runs that are not read": ("study=new", f"{HISTORY}\nddp-4gpu,1,2\n"),
    "Charts of W&B": (
        "study=new",
        '"Step","a - loss","a - loss__MIN","a - loss__MAX"\n1,2,2,2\n',
        '"Step","a - seconds","a - seconds__MIN","a - seconds__MAX"\n1,2,1,3\n',
    ),
    "Patterns of names": (
        "study=new names='{gpus}{batch}'",
        f"{HISTORY}\na,1,2\n",
    ),
    "Patterns that have no columns": (
        "study=new names=gpus_batch",
        f"{HISTORY}\na,1,2\n",
    ),
    "Patterns with a column that is none": (
        "study=new names='{bs}'",
        f"{HISTORY}\na,1,2\n",
    ),
    "Patterns with a column twice": (
        "study=new names='{gpus}-{gpus}'",
        f"{HISTORY}\na,1,2\n",
    ),
    "Patterns with half a brace": (
        "study=new names='{gpus}_{batch'",
        f"{HISTORY}\na,1,2\n",
    ),
    "Patterns of several readings": (
        "study=new names='*b{batch}*{gpus}gpu*'",
        f"{HISTORY}\nb16-b32-4gpu,1,2\n",
    ),
}
"""The words after `import lab.csv`, then each content of this file that is refused."""

OF_SITE = (
    "batches: 3\n",
    "batch: many\n",
    "batch: [\n",
    "- a\n",
    "clusters: {torhc: {account: a}}\n",
    "clusters: [greene]\n",
    "clusters: {local: {account: a}}\n",
)
"""Contents of the site's configuration file that are refused."""
