"""The desk: records in, tables out. Nothing here runs where cells are submitted or measured."""
