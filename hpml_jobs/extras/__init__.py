"""Features in a folder each, which `core.features` finds: none imports another."""
