"""Garbage collection in a process that must not pause."""

import gc


def spare_long_lived_objects() -> None:
    """Exempt all objects that exist now from garbage collection: modules, routes, vocabularies.

    Else each full collection, one in a second or two under load, goes through all of them and stops
    every stream meanwhile. Call it once what lives as long as the process is loaded.
    """
    gc.collect()
    gc.freeze()
