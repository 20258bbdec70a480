"""Sources of rows: files, frames and relations, read the same way everywhere."""
