"""The login node: compose cells, check them, send them, see them through."""
