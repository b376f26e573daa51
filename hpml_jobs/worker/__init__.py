"""The GPU node's room: one process per rank measures a cell and leaves a record."""
