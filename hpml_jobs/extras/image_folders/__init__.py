"""`workload.data=folder`: any folder of images, train/CLASS/IMAGE."""

from hpml_jobs.core.features import DataKind, Feature

FEATURE = Feature(
    data={
        "folder": DataKind(
            open="extras.image_folders.images:open_folder",
            facts="extras.image_folders.folder:with_images",
            digest="extras.image_folders.files:digest",
        )
    }
)
