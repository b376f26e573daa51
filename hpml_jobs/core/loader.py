"""The ways in which the batches of a cell are made (loader=)."""

from enum import StrEnum


class Loader(StrEnum):
    """Where images are augmented and put together into batches."""

    WORKERS = "workers"  # on CPUs, in the worker processes of a torch DataLoader
    DEVICE = "device"  # on the device, which holds all images from the start
