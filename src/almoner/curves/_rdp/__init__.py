"""Parts of Rényi curves: sampling and selection."""
