"""Records by person: from tensors and data sets, on one process or several."""
