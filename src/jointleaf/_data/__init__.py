"""From what users give to matrices of numbers: columns, linear features, scaling, rows."""
