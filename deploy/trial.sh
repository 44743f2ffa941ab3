#!/bin/sh
# Prepare a trial federation of three in the folder $1, for a server that parties reach at $2: invented rows, keys, terms.
# Real parties do each of these steps on a machine of their own.
set -eu
cd "$1"
if [ -e study/federation.toml ]; then
    echo "It is prepared already."
    exit 0
fi
python -c "from pathlib import Path; from fedfactor.federation.setup import invent; invent(Path('.'))"
fedfactor federation init study --address "$2" --rank 4 --rounds "${ROUNDS:-5}" --purpose "to see how it works"
for name in north south west; do
    fedfactor keygen "$name"
    fedfactor features "$name.csv"
    fedfactor federation add study/federation.toml "$name" "$name.key.pub"
done
fedfactor federation agree study/federation.toml north.features.json south.features.json west.features.json
