"""Tasks of srun that meet in every way that scripts choose, one after another."""

import json
import os
import re
import socket
import sys
from pathlib import Path

import torch
from torch import distributed as dist


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def main():
    folder = Path(sys.argv[1])
    given = dict(os.environ)
    rank, size = int(given["SLURM_PROCID"]), int(given["SLURM_NTASKS"])
    (folder / f"rank{rank}.json").write_text(json.dumps(given))
    first = re.split(r"[,\[]", given["SLURM_JOB_NODELIST"])[0]
    # by MASTER_PORT as it is given
    dist.init_process_group("gloo", rank=rank, world_size=size)
    ports = [free_port() for _ in range(4)]
    dist.broadcast_object_list(ports)
    dist.destroy_process_group()
    for way, port in zip(("variables", "address", "url", "store"), ports, strict=True):
        options = {"rank": rank, "world_size": size}
        if way == "variables":
            os.environ |= {"MASTER_ADDR": first, "MASTER_PORT": str(port)}
        elif way == "address":
            os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
        elif way == "url":
            options["init_method"] = f"tcp://{first}:{port}"
        else:
            options["store"] = dist.TCPStore(first, port, size, is_master=rank == 0)
        dist.init_process_group("gloo", **options)
        ranks = torch.tensor(rank)
        dist.all_reduce(ranks)
        print(f"{way}: {ranks.item()}", flush=True)
        dist.destroy_process_group()
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=size
    )
    dist.barrier()
    print("file: met", flush=True)


if __name__ == "__main__":
    main()
