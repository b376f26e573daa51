"""`loader=device`: all images lie on the GPU, which augments whole batches of them."""

from hpml_jobs.core.features import Feature, LoaderKind

FEATURE = Feature(
    loaders={
        "device": LoaderKind(
            open="extras.device_loader.loading:DeviceLoading",
            check="extras.device_loader.loading:check_tensors",
        )
    }
)
