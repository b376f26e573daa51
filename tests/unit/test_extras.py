"""Every entry of a feature names a function."""

import pytest

from hpml_jobs.core.features import Feature, features, load

EXTRAS = [*features()]


def entries_of(feature: Feature) -> list[str]:
    """The entries of all parts of a feature."""
    parts = [
        *feature.commands.values(),
        *feature.probes.values(),
        *feature.tables.values(),
        *feature.sheets.values(),
        *feature.tables_of_all.values(),
        *feature.training_pictures.values(),
        *feature.text_files.values(),
        *(
            part
            for by_name in feature.record_checks.values()
            for part in by_name.values()
        ),
    ]
    single = [feature.before_queue]
    single += [
        *feature.sections.values(),
        *feature.page_sections.values(),
        *feature.strategies.values(),
    ]
    single += [
        *feature.watchers.values(),
        *feature.models.values(),
        *feature.buffers.values(),
    ]
    groups = [
        *feature.cell_parts.values(),
        *feature.runners.values(),
        *feature.observers.values(),
        *feature.data.values(),
        *feature.loaders.values(),
    ]
    of_cells = [entry for group in groups for entry in group if ":" in entry]
    return [*(part.entry for part in parts), *filter(None, single), *of_cells]


@pytest.mark.parametrize("name", EXTRAS)
def test_every_entry_names_a_function_of_the_extra(name):
    for entry in entries_of(features()[name]):
        assert entry.startswith(f"extras.{name}.")
        assert callable(load(entry))
