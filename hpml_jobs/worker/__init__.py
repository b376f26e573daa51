"""The program on the GPU node: one process per rank measures a cell; rank 0 writes the record."""
