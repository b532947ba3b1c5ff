"""Penalties on weights as tables: the slopes and the bias of every cell, (C, q[, K])."""


class OnTables:
    """A bound penalty whose `value`, `prox` and `strength_max` take and give tables."""

    def __init__(self, bound):
        self.bound = bound

    def _flat(self, table):
        return self.bound.layout.from_cells(table)

    def value(self, table):
        return self.bound.value(self._flat(table))

    def prox(self, table, step):
        return self.bound.layout.by_cell(self.bound.prox(self._flat(table), step))

    def strength_max(self, table):
        return self.bound.strength_max(self._flat(table))

    def restricted(self, features):
        return OnTables(self.bound.restricted(features))

    def __getattr__(self, name):
        return getattr(self.bound, name)


def on_tables(penalty, layout):
    """Bind a penalty to a layout, for tables."""
    return OnTables(penalty.bind(layout))
