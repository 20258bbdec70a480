"""Where rows come from: files, frames and relations, read the same way everywhere."""
