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
        collect real.ipynb
        """,
    "Scripts": """
        script=trian.py
        script=wrong.py
        script=run.sh
        script=folder
        script=real.ipynb
        script=train.py "args=--lr 1"
        "script=-m nothere.train"
        "script=-m folder.missing"
        "script=-m deepspeed.launcher.runner"
        "script=deepspeed train.py"
        script=horovod.py gpus=2
        script=calls.py gpus=2
        script=saves.py batch=4
        script=train.py "args=--batch {batc}"
        script=train.py "args=--name 'x"
        script=train.py "args=--key ***"
        script=train.py window=50
        script=train.py window=1,50
        script=train.py launcher=bash
        script=train.py launcher=python gpus=2 device=cpu
        script=train.py launcher=python gpus=2 nodes=2
        script=train.py precision=bf16
        script=train.py workload=digits
        script=train.py grid=lab
        script=train.py "args=--b {batch}" grid=shuffling
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
        --config-dir configs grid=unknown-key
        --config-dir configs grid=cluster
        --config-dir configs grid=no-device
        --config-dir configs grid=only-cuda device=cpu
        --config-dir configs grid=only-cuda -m device=cpu,cuda
        --config-dir configs workload=twice
        --config-dir configs workload=python
        --config-dir configs workload=deep
        --config-dir configs workload=a-list
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
    "calls.py": "import torch, hvd\n",
    "hvd.py": "import horovod.torch\n",
    "saves.py": "import torch\ntorch.save({}, 'ck.pt')\n",
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
    "configs/grid/unknown-key.yaml": "blocks:\n- {gpu: [1]}\n",
    "configs/grid/cluster.yaml": "blocks:\n- {cluster: [greene]}\n",
    "configs/grid/no-device.yaml": "blocks: [{gpus: [1, 2], only_on: tpu}]\n",
    "configs/grid/only-cuda.yaml": "blocks: [{gpus: [1, 2], only_on: cuda}]\n",
    "configs/workload/twice.yaml": "lr: 1\nlr: 2\n",
    "configs/workload/python.yaml": "x: !!python/object:os.system 1\n",
    "configs/workload/deep.yaml": "[" * 2000,
    "configs/workload/a-list.yaml": "- a\n",
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

ROWS = "run,gpus,batch,epoch_s"

OF_TIMINGS = (
    "",
    f"{ROWS}\n",
    "1,32,48.612\n",
    "gpus,batch,epoch_s\na,1,32\n",
    "run,gpus,batch,rate,unit\n",
    "run,epoch,seconds\n",
    "run,step,timestamp\n",
    "run;gpus;batch;epoch_s\n",
    f",{ROWS}\n",
    f"{ROWS},gpus\n",
    f"{ROWS},train_s\n",
    f"{ROWS}\na,1,32,\udce9\n",
    f"{ROWS}\na,1,32,abc\n",
    f"{ROWS}\na,1,32,\n",
    f"{ROWS}\na,,32,9\n",
    f"{ROWS}\na,1,32,27:56\n",
    f"{ROWS}\na,1,32,0\n",
    f"{ROWS}\na,1,32,nan\n",
    f"{ROWS}\na,1,32,1e9\n",
    f"{ROWS}\na,1,32,4'800\n",
    f"{ROWS}\na,1.5,32,9\n",
    f"{ROWS}\na,0,32,9\n",
    f"{ROWS}\na,1,32,48,612\n",
    f"{ROWS}\na,1,32\n",
    f'{ROWS}\na,1,32,"48\n',
    f"{ROWS}\na,1,32,9\na,1,32,9\n",
    f"{ROWS},images\na,4,12501,9,50000\n",
    f"{ROWS},strategy\na,2,32,30,dpp\n",
    f"{ROWS},strategy\na,2,32,30,single\n",
    f"{ROWS},nodes\na,2,32,30,3\n",
    f"{ROWS},accuracy\na,2,32,30,64\n",
    f"{ROWS},images,images_per_s\na,2,32,30,50000,1000\n",
    "run,gpus,batch,images_per_s\na,2,32,1000\n",
    "run,gpus,batch,images,images_per_s\na,2,32,50000,1e-9\n",
)
"""Each content of lab.csv that `import lab.csv study=new` refuses."""

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
