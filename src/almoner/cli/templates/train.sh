#!/bin/sh
# Trains a private model on people.csv, and predicts with it. Run it with: sh train.sh
set -eu
cd "$(dirname "$0")"

set -- people.csv --target returns      # the table, with a header line, and the column to predict
set -- "$@" --schema schema.toml        # what is publicly known about the columns
set -- "$@" --epsilon 1 --delta 1e-5    # the privacy budget of each person; delta far below 1 / number of people
set -- "$@" --settings train.toml       # steps of gradient descent, and all else that may be chosen
set -- "$@" --out model                 # the folder for the model and its card

# A model that exists is not overwritten: a second model of the same people is a second release, with a budget of its own.
almoner train "$@"

# People with labels who are not in the table; remove this line without any. It writes model/metrics.json.
almoner score model heldout.csv

# The answers are about the people in this file: keep them as private as the file.
almoner predict model heldout.csv --out predictions.csv
