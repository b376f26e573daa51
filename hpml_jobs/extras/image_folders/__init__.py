"""`workload.data=folder`: any folder of images, train/CLASS/IMAGE."""

from hpml_jobs.core.features import DataFolder, Feature

FEATURE = Feature(
    data_folders={
        "folder": DataFolder(
            read="extras.image_folders.folder:read_image_folder",
            open="extras.image_folders.images:open_folder",
        )
    }
)
