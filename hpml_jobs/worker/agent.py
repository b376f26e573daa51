"""torchrun whose import is for life: it starts and ends faster than `torch.distributed.run`."""

from hpml_jobs.worker.fork_safety import imports_for_life

if __name__ == "__main__":
    with imports_for_life():
        from torch.distributed.run import main
    main()
