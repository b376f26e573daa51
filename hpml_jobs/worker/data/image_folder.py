"""A folder of images as a data set: torchvision's, with the file's name in every error."""

from pathlib import Path
from typing import Any

from torchvision.datasets import ImageFolder

from hpml_jobs.core.image_folder import images_of
from hpml_jobs.errors import HpmlError


class ImageFiles(ImageFolder):  # type: ignore[misc]  # torchvision has no types
    """The images of folder/CLASS/**, in ImageFolder's order; links that loop are not followed."""

    def __init__(self, root: Path, folder: Path, transform: Any) -> None:
        super().__init__(folder, transform=transform)
        self._data_root = root

    @staticmethod
    def make_dataset(
        directory: str | Path, class_to_idx: dict[str, int], *_: Any, **__: Any
    ) -> list[tuple[str, int]]:
        """Return the path and the label of every image.

        Raises:
            FileNotFoundError: a class has none.
        """
        samples = []
        for name in sorted(class_to_idx):
            files = images_of(Path(directory) / name)
            if not files:
                raise FileNotFoundError(f"no images in {Path(directory) / name}")
            samples += [(str(file), class_to_idx[name]) for file in files]
        return samples

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        """Return an image and its label.

        Raises:
            HpmlError: the file cannot be read; the message names it.
        """
        try:
            image, label = super().__getitem__(index)
        except MemoryError:
            raise
        except Exception as error:  # Pillow's readers raise many types for a damaged file
            file = Path(self.samples[index][0]).relative_to(self._data_root)
            reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise HpmlError(f"{file}: {reason} (data.root={self._data_root})") from error
        return image, label
