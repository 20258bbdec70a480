"""Use mechanisms and accounts of other libraries: events of dp_accounting, measurements of OpenDP, Opacus."""
