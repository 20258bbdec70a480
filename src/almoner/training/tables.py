"""Tables from CSV and Parquet files as features, labels and people, by a public schema (extra ``sklearn``).

:func:`read` gives the columns that a schema needs; :func:`encode`, :func:`labels` and :func:`people` make of them what
training takes. The features of a row depend on that row and on the schema alone, so encoding costs no privacy.
"""

from almoner.training._linear.schema import Schema
from almoner.training._linear.tables import encode, feature_names, labels, misfits, people, read

__all__ = ["Schema", "encode", "feature_names", "labels", "misfits", "people", "read"]
