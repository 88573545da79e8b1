"""The floor of the package: types, shapes, structures, errors; nothing here knows a graph."""
