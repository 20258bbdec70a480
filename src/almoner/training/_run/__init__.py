"""Steps of a training: contributions, noise, releases, checkpoints, callbacks."""
