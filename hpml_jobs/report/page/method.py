"""How the figures of a page were measured and derived, in short, with their formulas."""

HEADS = ("figure", "formula", "meaning")

FORMULAS: tuple[tuple[str, str, str], ...] = (
    (
        "epoch time",
        "max over ranks of T(epoch)",
        "the second epoch, without instruments, after a warm-up epoch; from a barrier to the last "
        "synchronization of the device; data loading included",
    ),
    (
        "throughput",
        "images, tokens or samples / epoch time",
        "of all processes, padding of the sampler included",
    ),
    ("speedup", "T(1, b) / T(N, b)", "the same batch b per GPU: weak scaling per epoch"),
    ("strong scaling", "T(1, G) / T(N, G/N)", "the same global batch G"),
    ("efficiency", "speedup / N", "1 is ideal; above 1.05 needs an explanation"),
    (
        "computation",
        "copies + forward + backward + optimizer",
        "an epoch with instruments, on the rank that waits least for others",
    ),
    (
        "communication",
        "exposed + packing",
        "time of collectives that no computation hides; hidden communication is in neither",
    ),
    (
        "residual (derived)",
        "train(N, b) - train(1, b) x ceil(D/N) / D",
        "the lab's estimate without instruments: everything that slows N GPUs down",
    ),
    (
        "bus bandwidth",
        "2(N-1)/N x bytes of gradients / seconds",
        "what a ring all-reduce moves over each link (Patarasuk and Yuan, 2009); 1 GB = 1e9 bytes",
    ),
    ("cost", "GPUs charged x epoch time", "GPUs of whole nodes where a cell has them exclusively"),
    (
        "interval",
        "[min, max] of n runs up to 8 runs",
        "contains the true median with probability 1 - 2^(1-n); speedups: bootstrap of the runs",
    ),
    (
        "difference",
        "exact Mann-Whitney test, from 6 rounds on signed ranks; p <= 5 %, and more than 2 %",
        "needs 4 runs of each cell; below, medians are compared and marked as undecided",
    ),
)

TEXT = (
    "Each cell is a new launch: a warm-up epoch, a timed epoch, and with protocol=full an epoch "
    "with instruments, one without gradient exchange, and a microbenchmark of its collectives. "
    "Records hold raw values; every figure is derived from them when the report is made. Nothing "
    "is simulated, and no run is dropped because of its time. docs/formulas.md derives each "
    "formula."
)

IMPORTED = (
    "The times of this study were imported from a file: hpml_jobs has not measured them, and "
    "cannot check them."
)
